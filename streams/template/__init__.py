"""The template: a process with all libraries loaded, from which Spark's Python processes are forked.

A stream needs a planner, a process that forks the workers for records, and three that fork the workers which plan a
query. Each would import the same 40 MB. So the driver starts one template beside the JVM (`start`). A Python process
that the JVM starts asks the template for a fork that does its work (`workers_path/sitecustomize.py`), and becomes a
`cat` that waits for the fork's end: the JVM keeps the pipes and the process that it has started.

    driver    starts the template, and gives Spark's Python processes the place of its socket
    process   command, environment, folder, path and the three standard descriptors  ->  template
    template  forks for each connection; the fork takes all of these over, and answers with one byte
    process   executes `cat`, which reads from the connection until it ends
    fork      gets SIGTERM when that process ends, and closes the connection when it ends itself

Without a template, or if it does not answer, the process does its work itself.
"""
