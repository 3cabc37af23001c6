"""Open-loop load over HTTP: a trace with real text, clients that give up and retry, figures."""
