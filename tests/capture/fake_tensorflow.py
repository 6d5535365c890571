"""A `tensorflow` of a few hundred lines: the places that capture watches, under their real names.

`write(folder)` makes the package. A `tf.function` calls Python when it is traced and sleeps when it is not;
the profiler allows one session per process and writes the markers that it saw into an XSpace file.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

_MODULES = {
    "tensorflow/__init__.py": """
        import contextlib
        __version__ = "2.21.0"
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator
        from tensorflow.python.distribute.distribute_lib import Strategy
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager.backprop import GradientTape
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
        from tensorflow.python.profiler import profiler_v2, trace

        function = Function

        class Device:
            name = device = "/job:localhost/replica:0/task:0/device:CPU:0"

        class config:
            @staticmethod
            def list_logical_devices(kind=None):
                return [Device]

        class raw_ops:
            synchronised = 0

            @classmethod
            def SyncDevice(cls):
                cls.synchronised += 1

        def constant(_):
            return Device

        def device(_):
            return contextlib.nullcontext()

        class profiler:
            class experimental:
                start = staticmethod(profiler_v2.start)
                stop = staticmethod(profiler_v2.stop)
                Trace = trace.Trace
    """,
    "tensorflow/python/eager/context.py": """
        graphs = []  # those that are being made, the outermost first

        def executing_eagerly():
            return not graphs

        def async_wait():
            pass
    """,
    "tensorflow/python/eager/backprop.py": """
        from tensorflow.python.eager import context

        class GradientTape:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def gradient(self, target, sources):
                for graph in context.graphs:
                    graph.operations.append(Op("gradient_tape/MatMul"))
                return 0

        class Op:
            type = "MatMul"

            def __init__(self, name):
                self.name = name
    """,
    "tensorflow/python/eager/polymorphic_function/polymorphic_function.py": """
        import time
        from tensorflow.python.eager import context
        from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction, Graph
        from tensorflow.python.profiler import trace

        class Function:
            def __init__(self, python_function):
                self.python_function = python_function
                self.__name__ = self._name = python_function.__name__
                self._function_cache = {}

            def _trace(self, args, kwargs):
                signature = tuple(map(type, args))
                if signature in self._function_cache:
                    return
                graph = Graph()
                context.graphs.append(graph)
                try:
                    self.python_function(*args, **kwargs)
                finally:
                    context.graphs.remove(graph)
                self._function_cache[signature] = ConcreteFunction(self._name, graph)

            def __call__(self, *args, **kwargs):
                if context.graphs:
                    return self.python_function(*args, **kwargs)
                with trace.Trace(self._name):
                    self._trace(args, kwargs)
                    time.sleep(0.001)
    """,
    "tensorflow/python/eager/polymorphic_function/concrete_function.py": """
        import time
        from tensorflow.python.profiler import trace

        class Graph:
            variables = captures = ()

            def __init__(self):
                self.operations = []

            def get_operations(self):
                return self.operations

        class ConcreteFunction:
            inputs = captured_inputs = ()

            def __init__(self, name, graph):
                self.name, self.graph = f"__inference_{name}_7".encode(), graph

            def __call__(self, *args, **kwargs):
                with trace.Trace(self.name.decode()):
                    time.sleep(0.001)
    """,
    "tensorflow/python/distribute/distribute_lib.py": """
        class StrategyBase:
            def run(self, fn, args=(), kwargs=None, options=None):
                return self._call(fn, *args, **(kwargs or {}))

            def _call(self, fn, *args, **kwargs):
                return fn(*args, **kwargs)

        class Strategy(StrategyBase):
            pass
    """,
    "tensorflow/python/distribute/input_lib.py": """
        class DistributedIteratorBase:
            def __init__(self, batches):
                self._batches = iter(batches)

            def __iter__(self):
                return self

            def __next__(self):
                return self.get_next()

            def get_next(self):
                return next(self._batches)
    """,
    "tensorflow/python/data/ops/iterator_ops.py": """
        import time

        class OwnedIterator:
            def __init__(self, batches, seconds=0.0):
                self._batches = iter(batches)
                self._seconds = seconds

            def __iter__(self):
                return self

            def __next__(self):
                time.sleep(self._seconds)
                return next(self._batches)
    """,
    "tensorflow/python/framework/errors.py": """
        class AlreadyExistsError(Exception):
            pass

        class UnavailableError(Exception):
            pass

        class OutOfRangeError(Exception):
            pass
    """,
    "tensorflow/python/profiler/internal/__init__.py": "",
    "tensorflow/python/profiler/internal/_pywrap_profiler.py": """
        import os, time
        from tensorflow.python.framework import errors
        from tensorflow.python.profiler import trace

        class ProfilerSession:
            active = None

            def start(self, logdir, options):
                # Not at the end: Python would forget that Ctrl-C has ended it.
                import scripts.xspace

                if ProfilerSession.active is not None:
                    raise errors.AlreadyExistsError("Another profiler is running.")
                ProfilerSession.active = id(self)
                self.logdir = logdir
                trace.events = []

            def __del__(self):
                if ProfilerSession.active == id(self):
                    ProfilerSession.active = trace.events = None

            def export_to_tb(self):
                events, trace.events = trace.events, None
                ProfilerSession.active = None
                folder = os.path.join(self.logdir, "plugins", "profile", "2026_01_01_00_00_00")
                os.makedirs(folder)
                with open(os.path.join(folder, "fake-host.xplane.pb"), "wb") as file:
                    file.write(space_of(events).SerializeToString())

        def space_of(events):
            from scripts.xspace import XSpace

            space = XSpace()
            plane = space.planes.add(name=b"/host:CPU")
            line = plane.lines.add(id=1, name=b"python", timestamp_ns=time.time_ns())
            first = min((event[2] for event in events), default=0)
            for name, stats, start, end in events:
                key = len(plane.event_metadata) + 1
                plane.event_metadata[key].id = key
                plane.event_metadata[key].name = name.encode()
                event = line.events.add(
                    metadata_id=key, offset_ps=(start - first) * 1000, duration_ps=(end - start) * 1000
                )
                for stat, value in stats.items():
                    number = 1 + ["step_num", "_r", "script_step_num"].index(stat)
                    plane.stat_metadata[number].id = number
                    plane.stat_metadata[number].name = stat.encode()
                    event.stats.add(metadata_id=number, int64_value=int(value))
            return space
    """,
    "tensorflow/python/profiler/trace.py": """
        import time

        events = None

        class Trace:
            def __init__(self, name, **stats):
                self._is_on = events is not None
                self._name, self._stats, self._start = name, stats, time.perf_counter_ns()

            def __enter__(self):
                return self

            def set_metadata(self, **stats):
                self._stats.update(stats)

            def __exit__(self, *_):
                if self._is_on and events is not None:
                    events.append((self._name, self._stats, self._start, time.perf_counter_ns()))
    """,
    "tensorflow/python/profiler/profiler_v2.py": """
        from tensorflow.python.framework import errors
        from tensorflow.python.profiler.internal import _pywrap_profiler

        _profiler = None

        def start(logdir, options=None):
            global _profiler
            if _profiler is not None:
                raise errors.AlreadyExistsError("Another profiler is running.")
            _profiler = _pywrap_profiler.ProfilerSession()
            _profiler.start(logdir, {})

        def stop(save=True):
            global _profiler
            if _profiler is None:
                raise errors.UnavailableError("No profiler is running.")
            if save:
                _profiler.export_to_tb()
            _profiler = None
    """,
    "keras/src/backend/tensorflow/trainer.py": """
        import tensorflow as tf

        class TensorFlowTrainer:
            name = "model"
            steps_per_execution = 1
            train_function = None

            def make_train_function(self, force=False):
                if self.train_function is None or force:
                    self.train_function = self._make_function()

            def _make_function(self):
                @tf.function
                def one_step(iterator):
                    tf.GradientTape().gradient(0, 0)

                return one_step

            def fit(self, calls):
                self.make_train_function()
                for _ in range(calls):
                    self.train_function(tf.input_lib.DistributedIteratorBase([]))
    """,
}

SCRIPT_START = """
import tensorflow as tf

@tf.function
def train_step(batch):
    tf.GradientTape().gradient(0, 0)

@tf.function
def evaluate(batch):
    pass

def batches(count, seconds=0.0):
    return tf.OwnedIterator(range(count), seconds)
"""
"""What most scripts of the tests begin with."""


def write(folder: Path) -> None:
    """Make the packages `tensorflow` and `keras` in a folder."""
    for name, source in _MODULES.items():
        path = folder / name
        for parent in path.parents:
            if parent == folder:
                break
            parent.mkdir(exist_ok=True, parents=True)
            (parent / "__init__.py").touch()
        path.write_text(dedent(source), encoding="utf-8")
