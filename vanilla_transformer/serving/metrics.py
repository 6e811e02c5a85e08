"""What Prometheus reads at `/metrics`."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

_PREFIX = "vanilla_transformer_"
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKEN_COUNTS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """All counters of a server. The names begin with `vanilla_transformer_`."""

    def __init__(self) -> None:
        # Without it, each counter has a second series.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = self._add_counter("requests", "Requests", "path", "method", "status")
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "Time from the head of a request to the end of its answer",
            ["path"],
            registry=self.registry,
        )
        self._characters = self._add_counter("characters", "Characters of source texts", "model")
        self._tokens = self._add_counter("source_tokens", "Tokens of source texts", "model")
        self._errors = self._add_counter(
            "computation_errors", "Requests whose computation failed", "model"
        )
        self._dropped = self._add_counter(
            "dropped_segments", "Lines that were not computed: the request was over", "model"
        )
        self._segments = self._add_histogram("batch_segments", "Lines in a batch", _BATCH_SIZES)
        self._batch_tokens = self._add_histogram(
            "batch_tokens", "Source tokens in a batch", _TOKEN_COUNTS
        )
        self._batch_seconds = self._add_histogram("batch_seconds", "Time to compute a batch", None)
        self._queued = Gauge(
            f"{_PREFIX}accepted_requests",
            "Requests that are accepted and not yet answered",
            ["model"],
            registry=self.registry,
        )

    def request_answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Counts a request.

        Args:
            path: Path of its route.
            method: HTTP method.
            status: HTTP status of the answer.
            seconds: Time that it took.
        """
        self._requests.labels(path, method, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def texts_read(self, model: str, characters: int, tokens: int) -> None:
        """Counts the texts of a request.

        Args:
            model: Name of the model.
            characters: Their characters.
            tokens: Their tokens.
        """
        self._characters.labels(model).inc(characters)
        self._tokens.labels(model).inc(tokens)

    def computation_failed(self, model: str) -> None:
        """Counts a request whose computation failed.

        Args:
            model: Name of the model.
        """
        self._errors.labels(model).inc()

    def watch_queue(self, model: str, accepted: Callable[[], float]) -> None:
        """Shows how many requests a model has accepted.

        Args:
            model: Name of the model.
            accepted: Returns the number.
        """
        self._queued.labels(model).set_function(accepted)

    def batches_of(self, model: str) -> "BatchMetrics":
        """Returns what the batches of a model are told to.

        Args:
            model: Name of the model.
        """
        return BatchMetrics(
            self._segments.labels(model),
            self._batch_tokens.labels(model),
            self._batch_seconds.labels(model),
            self._dropped.labels(model),
        )

    def render(self) -> bytes:
        """Returns all values in Prometheus's text format."""
        return generate_latest(self.registry)

    def _add_counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}{name}", description, labels, registry=self.registry)

    def _add_histogram(
        self, name: str, description: str, bounds: tuple[float, ...] | None
    ) -> Histogram:
        return Histogram(
            f"{_PREFIX}{name}",
            description,
            ["model"],
            buckets=bounds or Histogram.DEFAULT_BUCKETS,
            registry=self.registry,
        )


class BatchMetrics:
    """Counts the batches of one model; see `BatchObserver`.

    Args:
        segments: Lines in a batch.
        tokens: Source tokens in a batch.
        seconds: Time to compute a batch.
        dropped: Lines that were not computed.
    """

    def __init__(
        self, segments: Histogram, tokens: Histogram, seconds: Histogram, dropped: Counter
    ) -> None:
        self._segments, self._tokens = segments, tokens
        self._seconds, self._dropped = seconds, dropped

    def batch_computed(self, segments: int, tokens: int, seconds: float) -> None:
        """Counts a batch.

        Args:
            segments: Its lines.
            tokens: Their source tokens.
            seconds: Time that it took.
        """
        self._segments.observe(segments)
        self._tokens.observe(tokens)
        self._seconds.observe(seconds)

    def segments_dropped(self, segments: int) -> None:
        """Counts lines that are not computed.

        Args:
            segments: Their number.
        """
        self._dropped.inc(segments)
