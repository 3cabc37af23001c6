"""The conformance cases: complaints of users of other systems, each a test against this one.

Only a test marked ``@pytest.mark.case("CASE-A1")`` that ran and was not skipped passes a case.
"""

__all__ = ["CASES"]

CASES: dict[str, str] = {
    # Group A, what a request holds comes back
    "CASE-A1": "a client that leaves mid-stream frees place and tokens within 1 s, 1,000 times",
    "CASE-A2": "upstream timeouts and 502/504 up to the limit leave nothing held after recovery",
    "CASE-A5": "a stream that outlives every internal lifetime stays counted until it ends",
    "CASE-A7": "a client that leaves while queued is gone within 100 ms, undispatched, uncharged",
    "CASE-A8": "a permit is held until the body ends, not until the headers are out",
    "CASE-A9": "a concurrency cap without a rate is a hard cap through 60 s of saturation",
    "CASE-A10": "a disconnect aborts the upstream generation within 1 s, streamed or not",
    # Group B, estimates and limits
    "CASE-B1": "simultaneous requests never reserve more tokens per minute than the limit",
    "CASE-B2": "a request without estimable content still reserves the configured floor",
    "CASE-B3": "of conflicting output caps the worst counts, clamped to the route",
    "CASE-B4": "an output maximum of a thousand million is clamped or refused, never overflows",
    "CASE-B5": "a key at 90 % of its limit is served what fits, never locked past the window",
    "CASE-B6": "a tenant that reserves four times its use still reaches 90 % of its limit",
    "CASE-B8": "one limit over 1, 3 and 10 replicas admits no more than the stated overshoot",
    "CASE-B9": "the first concurrent requests of an unknown user are bound by the default budget",
    "CASE-B11": "a token limit charges tokens, whatever the usage, never one per request",
    "CASE-B12": "a budget accumulates over its window and tells its true reset time",
    # Group C, accounting
    "CASE-C1": "the same request costs the same tokens streamed and not streamed",
    "CASE-C2": "usage split over the first and the last event adds up",
    "CASE-C4": "a usage of explicitly zero charges zero",
    "CASE-C5": "1,000 short streams give back what they did not use: the bucket equals real usage",
    "CASE-C6": "usage asked for by the gateway is hidden from a client that did not ask",
    "CASE-C7": "a rule on requests alone never requires an output maximum",
    # Group D, the shared store
    "CASE-D1": "a frozen store adds at most 50 ms, hangs nothing, and shows in health within 1 s",
    "CASE-D2": "store errors that a helper swallows still open the breaker",
    "CASE-D4": "a store that forbids scripts fails the start: no silent local limits",
    "CASE-D5": "without the store budgets refuse while chat goes on in its local cap, both visible",
    "CASE-D6": "a restarted quota server is rejoined without timeouts and without stuck local mode",
    "CASE-D7": "limits can be off while the store serves others; a bare header picks no bucket",
    # Group E, queues and fairness
    "CASE-E1": "a queue bounded at Q never holds more than Q, counting every internal stage",
    "CASE-E2": "a short request behind an oversized one keeps p99 TTFT within 1.5 times solo",
    "CASE-E3": "a long request under steady short traffic starts within its ageing bound",
    "CASE-E4": "a quiet tenant beside a flooder keeps p99 TTFT and attainment near its solo values",
    "CASE-E6": "a queue wait never exceeds its limit by more than 100 ms under CPU saturation",
    "CASE-E7": "classes have maximum waits of their own, and a caller can only shorten its own",
    "CASE-E9": "two workers on one queue dispatch nothing twice; mixed priorities do not crash",
    "CASE-E10": "a client's deadline of 1 ms or priority above its own is clamped by policy",
    "CASE-E12": "a queue's bound in bytes or tokens sheds when it is reached",
    # Group F, telemetry and control
    "CASE-F1": "with stale, then zero metrics, admissions stay bounded by our own in-flight count",
    "CASE-F2": "losing all metrics alerts within 5 s and takes the documented fallback",
    "CASE-F4": "admission and placement read one number: nothing admitted finds no endpoint",
    "CASE-F5": "latency constant at the timeout shrinks the limit",
    "CASE-F7": "a threefold spike of 20 s leaves no queue 2 s (simulated) or 3 s (real) later",
    "CASE-F8": "the recomputed share of preempted work is reported",
    # Group G, refusals
    "CASE-G1": "every retryable refusal says when to come back, from backlog and rate",
    "CASE-G2": "a request that can never fit gets no Retry-After and a final reason",
    "CASE-G3": "overload is 429, nothing able to serve is 503, and neither is ever 500",
    "CASE-G4": "a refusal names whose limit it was and at which stage",
    "CASE-G5": "the stock OpenAI Python client obeys up to 120 s and stops where told",
    "CASE-G7": "our own retries stay within their budget and never follow our own refusal",
    # Group H, operation
    "CASE-H1": "memory at the end of a streaming soak is within 2 % of its first third",
    "CASE-H2": "1,000 requests at once: none lost, no crash",
    "CASE-H3": "one hung engine does not slow traffic to the others",
    "CASE-H4": "the ledger adds at most 1 ms p99 and no store round trip on the hot path",
    "CASE-H5": "a request body of 1 MB passes, read in a bounded way",
}
