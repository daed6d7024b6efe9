"""Whether network, objective and data fit to run, found out before the first round."""
