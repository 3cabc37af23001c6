"""Questions answered by measuring: the article's rows, replays of traces, load over HTTP, the demo."""
