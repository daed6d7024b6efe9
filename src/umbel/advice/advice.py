"""The answer of `advise`, and the same in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isinf, isnan

from umbel.advice.facts import Facts
from umbel.advice.gain_per_client import Fate
from umbel.advice.gains import LossGain, ahead, one_beside
from umbel.advice.losses import FEWEST_CLIENTS
from umbel.advice.structure import Structure
from umbel.advice.trial import DIVERGED, TIME_UP, Standing
from umbel.advice.verdict import ALIKE, Verdict, below, in_field, is_worth_it, preferred_clusters
from umbel.client.work import LocalTraining
from umbel.summary import counted, few, in_short, joined_by_and

FEW_EXAMPLES = 5
"""With fewer training examples in a median client, a sentence warns of too little data."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer of `advise`: whether one model, several, or one for each client is best."""

    names: tuple[str, ...]  #: the clients
    facts: Facts  #: sizes, labels and drift
    structure: Structure  #: how the clients' examples differ, measured before any training
    standings: tuple[Standing, ...]  #: results of each way to serve the clients
    verdict: Verdict  #: the answer
    fates: tuple[Fate, ...]  #: what the answer means to each client
    test: dict[str, tuple[float, float | None]]  #: way -> mean loss and accuracy on test examples
    local: LocalTraining  #: how clients trained
    seed: int  #: seed of all random numbers

    __repr__ = in_short

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return dict(zip(self.names, self.verdict.clusters.tolist(), strict=True))

    def __str__(self) -> str:
        return "\n".join(sentences(self))


def sentences(advice: Advice) -> list[str]:
    """The answer, then the reasons, which clients gain or are hurt, the cost, and the doubts."""
    return [
        headline(advice),
        *_untrained(advice),
        *_why(advice),
        *_who(advice),
        *_cost(advice),
        *_doubts(advice),
    ]


def headline(advice: Advice) -> str:
    """The answer in one sentence; if another way has a lower loss, also why that is not advised."""
    lower, said = _lower(advice), _what_to_do(advice)
    if lower is None:
        return said
    losses = f"{lower.mean:.3g} against {advice.verdict.chosen.mean:.3g}"
    told = f"the way called {lower.contender.name!r} has a lower loss ({losses})"
    return f"{said.removesuffix('.')}; {told}, but {_why_not(lower, advice)}."


def _what_to_do(advice: Advice) -> str:
    verdict = advice.verdict
    tuned = ", and let each client fine-tune it" if verdict.tuned else ""
    if verdict.answer == "clusters":
        each = ", and let each client fine-tune its own" if verdict.tuned else ""
        return f"Train {verdict.num_clusters} models, one for each cluster of clients{each}."
    if verdict.answer == "train alone":
        return f"Let each client train alone{_no_better(advice)}."
    if verdict.answer == "too few examples to tell":
        return "There are too few examples to tell; until there are more, train one model for all."
    return f"Train one model for all clients{tuned}."


def _no_better(advice: Advice) -> str:
    """Return what all models shared by clients have in common, if training alone is advised."""
    alone = advice.verdict.chosen
    shared = [each for each in advice.standings if each.contender.kind != "local"]
    if any(ahead(each, alone) for each in shared):
        return ""
    lower = any(each.mean < alone.mean for each in shared)
    return f": no model that clients share is {'surely better' if lower else 'as good'}"


def _untrained(advice: Advice) -> Iterator[str]:
    lost = _never_trained(advice)
    if lost:
        yield (
            f"{len(lost)} of {len(advice.names)} clients never trained ({few(lost)}): training "
            "diverged there every time. Scale inputs or targets, and ask again."
        )


def _never_trained(advice: Advice) -> list[str]:
    never = advice.verdict.chosen.never_trained
    return [name for name, lost in zip(advice.names, never, strict=True) if lost]


def _why(advice: Advice) -> Iterator[str]:
    structure, verdict = advice.structure, advice.verdict
    kinds = [each.kind for each in structure.differences if each.found]
    if kinds:
        yield f"Clients differ in their {joined_by_and(kinds)} by more than chance explains."
    elif structure.differences and verdict.answer in ("clusters", "train alone"):
        yield "Clients' losses show that clients differ; their examples alone do not show it."
    elif structure.differences:
        yield (
            "Clients do not differ in their inputs, labels, or labels given inputs by more than "
            "chance explains."
        )
    else:
        yield "Too few clients have enough examples to be compared before training."
    if structure.num_groups > 1:
        yield f"Their examples look as if they came from {structure.num_groups} distributions."
    if verdict.chosen.contender.kind != "one" or verdict.tuned:
        yield from _gained(f"one model for all{_as_long(advice)}", verdict.over_one)
    if not verdict.alone.course:
        why = verdict.alone.stopped
        yield (
            "Training alone diverged."
            if why == DIVERGED
            else f"Training alone was stopped before it was evaluated: {why}."
        )
    elif verdict.chosen.contender.kind != "local":
        yield from _gained(f"training alone{_shorter(advice)}", verdict.over_alone)


def _gained(over: str, gain: LossGain) -> Iterator[str]:
    """By how much the mean validation loss is lower, with its interval, where that is known."""
    if isnan(gain.mean):
        return
    way = "lower" if gain.mean > 0 else "higher"
    amount = f"{way} by {abs(gain.mean):.3g}" if gain.mean else "the same"
    said = f"Against {over}, the mean validation loss is {amount}"
    if gain.low == gain.high == 0:
        yield f"{said}, for every client."
    elif isinf(gain.low):
        yield f"{said}; there are too few validation examples for an interval."
    else:
        p = f"; significant by Wilcoxon's signed-rank test, p = {gain.rank_p_value:.2g}"
        sure = p if gain.by_ranks else ""
        yield f"{said} (95% interval of the gain: {gain.low:.3g} to {gain.high:.3g}{sure})."


def _who(advice: Advice) -> Iterator[str]:
    if advice.verdict.chosen is advice.verdict.one:
        return
    gaining = [n for n, fate in zip(advice.names, advice.fates, strict=True) if fate.gains]
    hurt = [n for n, fate in zip(advice.names, advice.fates, strict=True) if fate.hurt]
    of = len(advice.names)
    yield (
        f"Compared with one model{_as_long(advice)}, {len(gaining)} of {of} clients surely "
        f"gain, and {len(hurt)} {'is' if len(hurt) == 1 else 'are'} surely hurt"
        f"{f' ({few(hurt)})' if hurt else ''}"
        + ("." if len(gaining) + len(hurt) == of else "; for the others their examples can't tell.")
    )


def _as_long(advice: Advice) -> str:
    """Fine-tuning adds epochs after the last round, as its rivals have."""
    verdict = advice.verdict
    return "" if verdict.beside is verdict.one else " trained for as many epochs"


def _shorter(advice: Advice) -> str:
    verdict = advice.verdict
    if not verdict.tuned and verdict.alone.stopped and verdict.alone.rounds < verdict.chosen.rounds:
        return f" for {verdict.alone.rounds} rounds in place of {verdict.chosen.rounds}"
    return " without the epochs of fine-tuning" if verdict.tuned else ""


def _cost(advice: Advice) -> Iterator[str]:
    chosen = advice.verdict.chosen
    if chosen.contender.kind == "local" and not chosen.contender.tuned:
        yield "It costs no traffic."
    else:
        yield f"Until its best round it cost {chosen.megabytes:.3g} MB to and from each client."


def _doubts(advice: Advice) -> Iterator[str]:
    facts, verdict = advice.facts, advice.verdict
    yield from _from_another_start(advice)
    if facts.train[1] < FEW_EXAMPLES:
        yield f"Half of the clients have {counted(facts.train[1], 'training example')} or fewer."
    if verdict.one.examples:
        yield from _few_judges([len(each) for each in verdict.one.examples], facts.validation)
    if facts.drifts:
        yield (
            f"Test inputs can be told from training inputs (area under the curve "
            f"{facts.drift:.2f}): the way that was best in training may not stay the best."
        )
    if facts.unseen:
        own = "its" if facts.unseen == 1 else "their"
        yield (
            f"{counted(facts.unseen, 'client')} will meet labels that are not among {own} own "
            "training examples."
        )
    yield from _still_learning(advice)
    yield from _not_clusters(advice)


def _few_judges(counts: Sequence[int], given: int) -> Iterator[str]:
    """Describe the examples that ways are compared by, if clients are too few for a test.

    `counts` are the clients' validation examples with labels; `given` is 0 if they were set apart.
    """
    several = sum(count > 1 for count in counts)
    if not any(counts):
        yield (
            "No validation example has a label: nothing tells which way is better."
            if given
            else "No client has enough training examples to set any apart for validation: nothing "
            "tells which way is better."
        )
    elif not several:
        yield "No client has more than one validation example: no gain can be told from chance."
    else:
        yield (
            f"Fewer than {FEWEST_CLIENTS} clients can be compared by validation examples: what is "
            "sure holds for these clients, and need not hold for others."
        )
        if left := len(counts) - several:
            yield (
                f"{counted(left, 'client')} with fewer than two validation examples "
                f"{'is' if left == 1 else 'are'} left out of the mean validation losses."
            )


def _not_clusters(advice: Advice) -> Iterator[str]:
    """Return why clients that differ should have one model."""
    verdict, standings = advice.verdict, advice.standings
    compared = advice.structure.found and not _never_trained(advice)
    if verdict.answer != "one model" or verdict.tuned or not compared:
        return
    clustered = [each for each in standings if each.contender.kind == "clusters" and each.divided]
    preferred = preferred_clusters(standings, advice.structure)
    if preferred is not None and ahead(preferred, verdict.one):
        yield f"Clusters are better by no more than {ALIKE:.1%}, and one model is simpler."
    elif not any(ahead(each, one_beside(each, verdict.one)) for each in clustered):
        yield "No clustering is surely better than one model."


def _from_another_start(advice: Advice) -> Iterator[str]:
    """About a clustering that became one model, and a better one than the model for all."""
    one = advice.verdict.one
    better = [s for s in advice.standings if s.merged and not s.contender.tuned and ahead(s, one)]
    if better:
        best = min(better, key=lambda each: each.mean)
        yield (
            f"In the way called {best.contender.name!r} all clients chose the same model, which is "
            "one model from another start. Its loss is surely lower: ask again with other seeds or "
            "a wider network, because one model for all depends on its start."
        )


def _lower(advice: Advice) -> Standing | None:
    """The way with the lowest loss, if it is not the advised one and the answer says no reason.

    Of ways that do not fine-tune, only a loss that is lower by more than `ALIKE` counts.
    """
    verdict = advice.verdict
    loss = verdict.chosen.mean
    told = verdict.answer in ("train alone", "too few examples to tell")
    others = [
        each
        for each in advice.standings
        if each.course
        and (each.contender.tuned or (not told and each.mean < loss - ALIKE * abs(loss)))
    ]
    best = min(others, key=lambda each: each.mean, default=verdict.chosen)
    return best if best.mean < loss else None


def _why_not(lower: Standing, advice: Advice) -> str:
    """Return why a way with a lower loss is not advised."""
    verdict, standings = advice.verdict, advice.standings
    if lower.merged:
        return "all its clients chose the same model, which is one model from another start"
    if not is_worth_it(lower, verdict.one):
        as_good = [each for each in lower.rivals if not below(lower, each)]
        if not as_good:
            return "chance may have brought it"
        best = min(as_good, key=lambda each: each.mean)
        name = best.contender.name.removesuffix(", trained on")
        return (
            f"as many further epochs without fine-tuning bring as much: {name!r} then has "
            f"{best.mean:.3g}"
        )
    if in_field(lower, preferred_clusters(standings, advice.structure)):
        return f"by less than {ALIKE:.1%}, and the advised way is simpler"
    lead = "is more than chance" if ahead(lower, verdict.chosen) else "may be chance"
    before = "before fine-tuning " if lower.contender.tuned else ""
    return (
        f"{before}its clusters were not surely better than those that the examples show; "
        f"its lead over the advised way {lead}"
    )


def _still_learning(advice: Advice) -> Iterator[str]:
    """Return True if more rounds may help, by the last three evaluations, or two.

    They do not help where something else than the budget ended the training.
    """
    contender = advice.verdict.chosen.contender
    trained = contender.base or contender  # fine-tuning is no round of the budget
    standing = next(each for each in advice.standings if each.contender == trained)
    first, *later = [loss for _, loss in standing.course][-3:]
    if standing.stopped not in ("", TIME_UP):
        yield f"Training in the advised way was stopped: {standing.stopped}."
    elif not later and isfinite(first):
        yield "The budget is too short to see if the advised way still gets better: allow more."
    elif later and isfinite(later[-1]) and first - later[-1] > 0.02 * abs(first):
        yield "The advised way was still getting better when the budget ended: allow more rounds."
