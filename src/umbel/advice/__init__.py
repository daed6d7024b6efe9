"""Advice: whether to train one model, several, or one each, for whom, and how sure that is."""

from umbel.advice.advice import Advice
from umbel.advice.adviser import advise

__all__ = ["Advice", "advise"]
