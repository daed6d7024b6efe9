"""Several scenarios combined to one federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from umbel.checks import UsageError, check, within
from umbel.data.federation import Federation
from umbel.data.partition import equal_groups
from umbel.data.scenarios.base import Scenario, check_clients, check_examples
from umbel.data.scenarios.shifted import Shifted
from umbel.data.sources import Sources
from umbel.data.splits import Pair
from umbel.seeds import Stream, seed_of


@dataclass(frozen=True)
class Together(Scenario):
    """The clients of several `shifted` scenarios in one federation, with separate groups.

    All parts must have the same input shape and number of classes, but a label may have a different
    meaning in each part. Parts draw from their sources independently.
    """

    parts: tuple[Shifted, ...] = (Shifted(),)  # the scenarios, whose clients are put together
    clients: int = 20  # M, divided equally among the parts, instead of their `clients`
    # a client's, instead of the parts' `examples`; (): the parts' own
    examples: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check(bool(self.parts), "parts", self.parts, "a list with at least one scenario")
        check_clients(self.clients, len(self.parts), "parts")
        check_examples(self.examples)

    def build(self, seed: int, sources: Sources) -> Federation:
        counts = equal_groups(self.clients, len(self.parts)).tolist()
        built = [self._part(number, count, seed, sources) for number, count in enumerate(counts)]
        kinds = {(part.input_shape, part.num_classes) for part in built}
        check(
            len(kinds) == 1,
            "parts",
            sorted(kinds, key=str),
            "one input shape and one set of classes",
        )
        groups: list[int] = []
        for part in built:
            assert part.groups is not None
            groups += (part.groups + max(groups, default=-1) + 1).tolist()
        return Federation.from_arrays(
            [part.train.of(client) for part in built for client in range(part.num_clients)],
            [part.test.of(client) for part in built for client in range(part.num_clients)],
            validation=_validation(built),
            groups=groups,
            num_classes=built[0].num_classes,
        )

    def _part(self, number: int, count: int, seed: int, sources: Sources) -> Federation:
        """One part, with this many clients. Raises `UsageError` with the path of its setting."""
        examples = self.examples or self.parts[number].examples
        part = replace(self.parts[number], clients=count, examples=examples)
        ours = {"clients", "examples"} if self.examples else {"clients"}
        try:
            with within(f"parts[{number}]", {each.name for each in fields(part)} - ours):
                return part.build(seed_of(seed, Stream.DATA, number, 1), sources)
        except UsageError as error:
            rest = str(error).removeprefix(f"clients: {count} ")
            if rest == str(error):
                raise
            shared = f"clients: {self.clients} gives parts[{number}] {count}, which"
            raise UsageError(f"{shared} {rest}") from None


def _validation(parts: Sequence[Federation]) -> list[Pair] | None:
    """The validation examples of all clients, for some possibly empty; None if none has any."""
    if all(part.validation is None for part in parts):
        return None
    pairs = []
    for part in parts:
        for client in range(part.num_clients):
            x, y = part.train.of(client)
            none = (x[:0], y[:0])
            pairs.append(none if part.validation is None else part.validation.of(client))
    return pairs
