"""Several tasks, one commit: rows and the indexes made from them appear together or not at all."""
