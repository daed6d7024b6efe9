"""The file `experiment.toml` of a run, whose first line, a comment, is its seal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from umbel.checks import UsageError, command
from umbel.experiment import toml_file
from umbel.experiment.differences import ELSEWHERE
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.places import look_in
from umbel.files.atomic import write_text
from umbel.files.reading import read_bytes, read_text
from umbel.files.seals import BLANK, BROKEN, KEY, intact, sealed
from umbel.folder import checkpoint
from umbel.folder.how_to_continue import in_python
from umbel.folder.identity import experiment_changes

HEAD = f"# {KEY}: {BLANK}\n"
"""Beginning of the first line, above the settings."""


@dataclass(frozen=True)
class ExperimentFile:
    """The experiment file of one folder."""

    file: Path

    def write(self, experiment: ExperimentSettings) -> None:
        """Replace the file."""
        write_text(self.file, sealed(HEAD + toml_file.write(experiment, self.file.parent)))

    def check_is_ours(self) -> None:
        """Raise `UsageError` for a file that umbel did not write, before a run begins there."""
        if not self.is_ours:
            said = f"is not a file that umbel wrote, and is kept; {ELSEWHERE}"
            raise UsageError(f"{self.file}: {said}")

    @property
    def is_ours(self) -> bool:
        """True if there is no file, or one that umbel wrote, which begins with a seal."""
        return not self.file.is_file() or intact(read_bytes(self.file)) is not None

    def read(self, looking: bool) -> ExperimentSettings:
        """Read the experiment. Raises `UsageError` if it was changed after it was written."""
        whole = intact(read_bytes(self.file)) if self.file.is_file() else None
        # A changed setting is named, even if the seal was removed, too: the checkpoint has the old
        # ones.
        if not whole and (changes := self._changes()):
            raise UsageError(f"{self.file}: changed after it was written: {changes}; undo that")
        if whole is False:
            how = "undo that, or, if it is intended, remove the first line, the seal"
            how += f"; to change only rounds, undo that and run {self._with_rounds}"
            raise UsageError(f"{self.file}: changed after it was written; {how}")
        return toml_file.read(self.file, looking=looking)

    def importing(self, part: str) -> ExperimentSettings:
        """Read the experiment, and import only the modules that this part of it names."""
        # Read without imports first: the seal is checked before any code of the file's choice runs.
        looked_at = self.read(looking=True)
        look_in(self.file, [self.file.absolute().parent], {part: toml_file.plain(looked_at)[part]})
        try:
            return toml_file.importing(looked_at, part)
        except UsageError as error:
            raise UsageError(f"{self.file}: {error}") from None

    def check_rounds(self, said: int, done: int) -> None:
        """Raise `UsageError` if the file says another number of rounds than the run has done."""
        file = self.file.with_name("checkpoint.safetensors")
        if said != done and file.is_file() and checkpoint.next_round(file) == done:
            how = f"write {done} again; for more rounds, then run {self._with_rounds}"
            raise UsageError(
                f"{self.file}: rounds: {said}, but the run finished after {done}; {how}"
            )

    @property
    def _with_rounds(self) -> str:
        run = self.file.parent
        if in_python(run):
            return f'umbel.resume("{run}", run, rounds=N)'
        return f"`{command('resume', run, '--rounds', 'N')}`"

    @property
    def text(self) -> str:
        """The settings as TOML, without the seal. Raises `UsageError` if the file is not text."""
        text = read_text(self.file)
        return text if intact(text.encode()) is None else text[len(HEAD) :]

    def _changes(self) -> str:
        """The settings that differ from those in the last checkpoint, if it has any."""
        file = self.file.with_name("checkpoint.safetensors")
        try:
            was = checkpoint.made(file) if file.is_file() else {}
            now = toml_file.plain(toml_file.read(self.file, looking=True))
            changes = list(experiment_changes(was, now)) if was else []
        except BROKEN:  # damage is reported when that file is read
            return ""
        return "; ".join(changes[:3])
