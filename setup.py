"""The one compiled module. All else is in pyproject.toml, whose words for this setuptools still calls experimental."""

from setuptools import Extension, setup

# Optional: without a C compiler the install goes through, and traceview.xplane.decode_reference does the work.
DECODER = Extension(
    "traceview.xplane.decode",
    ["traceview/xplane/decode.pyx"],
    extra_compile_args=["-O3"],
    optional=True,
)

setup(ext_modules=[DECODER])
