"""The asyncio owner of one core object: single writer, timers, carrying out effects."""
