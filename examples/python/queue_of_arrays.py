# SPDX-License-Identifier: MIT
"""cuda_link.Queue in the place of torch.multiprocessing's: arrays and tensors, and whatever is around them,
from several processes to several others."""

import multiprocessing  # or torch.multiprocessing

import cuda_link
import demo
import numpy as np

WORKERS = 2


def work(jobs: cuda_link.Queue, results: cuda_link.Queue) -> None:
    """Takes jobs until there is none."""
    while (job := jobs.get()) is not None:
        number, picture = job
        results.put({"number": number, "gray": picture[..., :3].mean(axis=2, dtype=np.float32)})
    results.put(None)


def main() -> None:
    wanted = demo.options(__doc__)
    jobs, results = cuda_link.Queue(maxsize=4), cuda_link.Queue()  # was: multiprocessing.Queue(...)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(jobs, results)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for number in range(wanted.frames):
        jobs.put((number, demo.picture(number, wanted.height, wanted.width)))  # waits while four wait
    for _ in workers:
        jobs.put(None)
    answers, ended = {}, 0
    while ended < WORKERS:
        answer = results.get(timeout=demo.PATIENCE)
        ended += answer is None
        if answer:
            answers[answer["number"]] = answer["gray"]
    for worker in workers:
        worker.join()
    right = all(
        np.allclose(answers[n], demo.picture(n, wanted.height, wanted.width)[..., :3].mean(axis=2), atol=0.01)
        for n in range(wanted.frames)
    )
    print(f"{len(answers)} pictures went through two queues and {WORKERS} workers, all right: {right}")


if __name__ == "__main__":
    main()
