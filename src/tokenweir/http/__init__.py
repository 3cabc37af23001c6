"""What gateway and middleware share: body parsing, accounting of streams, refusals."""
