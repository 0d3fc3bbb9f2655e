"""What others' evaluation does on the same work; each module runs alone, with a Python of its own.

`python scripts/peers/NAME.py short|long SECONDS` prints a line of JSON: name, environment steps,
episodes, and the CPU seconds of this process that they took. Exit code 3: it is not installed.
"""
