"""The command line: one verb a file. To add a verb, copy one, and give it its line in `app.py`."""
