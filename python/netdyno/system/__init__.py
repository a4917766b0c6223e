"""The machine: namespaces, processes, kernel settings, and the journal that undoes every change to it."""
