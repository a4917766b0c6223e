"""The dashboard: a web server over the run store, for browsers that watch, start and steer runs."""
