"""Advice: whether to train one model, several, or one each, for whom, and how sure that is."""

from umbel.advice.adviser import advise
from umbel.advice.words import Advice

__all__ = ["Advice", "advise"]
