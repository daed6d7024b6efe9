"""Figures: what they show, and how they are drawn for pages and files."""
