"""Advice: whether to train one model, several, or one each, for whom, and how sure that is."""

from umbel.advice.adviser import Advice, advise

__all__ = ["Advice", "advise"]
