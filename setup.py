"""The compiled modules and the start-up file. All else is in pyproject.toml, whose words for this setuptools still calls experimental."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

# Optional: without a C compiler the install goes through, and the modules `…_reference` do the work.
# Numbers that leave int64 wrap as those of numpy do; without the option that is undefined in C, from Python 3.12 on.
OPTIONS = ["-O3", "-fwrapv"]
COMPILED = [
    Extension(
        name,
        [f"{name.replace('.', '/')}.pyx"],
        depends=["traceview/base/places.pxd"],
        extra_compile_args=OPTIONS,
        optional=True,
    )
    for name in ("traceview.base.sweeps", "traceview.xplane.decode")
]
COMPILED += [
    Extension(name, [f"{name.replace('.', '/')}.c"], optional=True)
    for name in (
        "traceview.capture.process.native",
        "traceview.capture.sampling.stacks",
        "traceview.capture.sampling.thread_clocks",
    )
]
STARTUP = "traceview.pth"


class BuildWithStartup(build_py):
    """Puts the start-up file beside the package, where Python reads it; no option of setuptools does."""

    def run(self) -> None:
        """Build the package, and add the file."""
        super().run()
        if self.editable_mode:
            # The folder whose contents become the wheel of an editable install.
            target = Path(self.get_finalized_command("install").install_lib)
        else:
            target = Path(self.build_lib)
        target.mkdir(parents=True, exist_ok=True)
        self.copy_file(STARTUP, str(target / STARTUP), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name it among the files of a wheel."""
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, str(Path(self.build_lib) / STARTUP)]

    def get_source_files(self) -> list[str]:
        """Name it among those of a source distribution."""
        return [*super().get_source_files(), STARTUP]


setup(ext_modules=COMPILED, cmdclass={"build_py": BuildWithStartup})
