"""Questions answered by measuring: the article, replays, load over HTTP, the demo."""
