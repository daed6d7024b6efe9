"""An experiment, the run that it describes, and the folder that the run is kept in."""
