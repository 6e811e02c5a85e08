"""The server: models behind HTTP, with batches across requests.

A request passes `request_log` to a route, which reads its fields (`bodies`) and makes `contents` of
them: items of one direction. `Service.answer` asks `ServedDirection.compute` (`models`), which asks
one model, or two in turn. `ServedModel.compute` plans the job, splits it into segments, gives these
to the `Batcher`, and joins the outputs.

A `ModelEntry` is what the command names, a `ServedModel` its queue, and a `LoadedModel` its
translator in memory, which `Translators` keeps.
"""
