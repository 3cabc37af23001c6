"""What does it cost? Each file is a command with ``--json``; none is a timed test."""
