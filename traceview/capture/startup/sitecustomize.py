"""Arms traceview in a Python that has no `traceview.pth`, and then runs the sitecustomize that it stands before.

`traceview capture -- COMMAND` puts this folder first on PYTHONPATH, where any Python may find it: even one too old for
traceview has to read this file.
"""

import os
import sys
from importlib import import_module

_folder = __file__.rpartition(os.sep)[0]
# As if the folder had never been there.
sys.path[:] = [path for path in sys.path if path != _folder]
if sys.version_info >= (3, 10) and os.environ.get("TRACEVIEW_CAPTURE"):
    try:
        try:
            _launched = import_module("traceview.capture.launch.launched")
        except ImportError:
            # Another environment, or an older traceview in it: it gets this package, and nothing beside it.
            for _name in [name for name in sys.modules if name.partition(".")[0] == "traceview"]:
                del sys.modules[_name]
            _root = _folder.rsplit(os.sep, 3)[0]
            sys.path.insert(0, _root)
            try:
                _launched = import_module("traceview.capture.launch.launched")
            finally:
                sys.path.remove(_root)
        _launched.arm()
    except Exception as error:
        sys.stderr.write("traceview: nothing is captured: " + repr(error) + "\n")

if hasattr(sys, "maxint"):
    # Python 2 needs the module that it has begun to load.
    _loader = import_module("pkgutil").find_loader("sitecustomize")
    if _loader is not None:
        _loader.load_module("sitecustomize")
else:
    sys.modules.pop("sitecustomize", None)
    # Without another one this raises what the caller expects.
    import_module("sitecustomize")
