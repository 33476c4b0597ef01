import subprocess
import sys

IMPORT = "import great_expectations, os; os.write(1, b'imported')"


def test_the_suite_can_be_imported_by_a_process_without_a_main_file():
    """`python -c` has neither a spec nor a file, just as a spawned process."""
    named = f"from tidegate.quality_checks.main_module import name_main_module; name_main_module(); {IMPORT}"
    done = subprocess.run([sys.executable, "-c", named], capture_output=True, check=False)
    assert done.stdout.endswith(b"imported"), done.stderr[-2000:]
