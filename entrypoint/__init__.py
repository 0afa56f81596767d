"""Between GitHub and parity: the gate, the launch of the legs, and what is published of them. No numerics here.

Three programs, one for each job of a careful workflow, all driven by `action.yml`:

    gate      with a token, on an event: may this commit be run? Answers on the pull request.
    launch    without a token: runs the legs of a suite in a container, or as processes, and writes one folder.
    publish   with a token, without the code under test: reads that folder as data, judges it anew, and writes the
              summary, the annotations, the outputs, the commit status and the comment.

`launch` and what it imports is standard library and runs on Python 3.9 or newer, for it runs on the runner itself.

The folder that `launch` leaves (input `out`):

    launch.json   how the legs were run: isolation, image, what the preflight found, exit code; by `launch` alone
    run/          the run directory, the one place that the code under test may write to
"""
