"""What the storm does: each function is one act. It says what it did, or nothing if there was nobody to do it to."""

import signal
import time

KILL, STOP, CONT, TERM = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM


def kill_all(storm, agent, runs):
    """Kills an agent and wrappers at once: in any order, or stopped first, so that none notices that another has ended."""
    processes = [run.wrapper for run in runs] + ([agent] if agent else [])
    storm.rng.shuffle(processes)
    if storm.rng.random() < 0.5:
        for process in processes:
            process.signal(STOP)
    for run in runs:
        run.done.add("wrapper killed")
    for process in processes:
        process.signal(KILL)
    if agent:
        storm.revive_soon()


def some(storm, runs, count):
    runs = [run for run in runs if run.can_lose_wrapper(storm.contained)]
    return storm.rng.sample(runs, min(count, len(runs)))


def command(storm):
    """A process of a command is killed."""
    run = storm.one_of([run for run in storm.runs if run.processes])
    if run:
        run.done.add("command killed")
        process = storm.rng.choice(run.processes)
        process.signal(KILL)
        return f"process {process.pid} of run {run.number}"


def wrapper(storm):
    runs = some(storm, storm.holding(), 1)
    kill_all(storm, None, runs)
    return runs


def waiter(storm):
    runs = some(storm, storm.waiting(), 1)
    kill_all(storm, None, runs)
    return runs


def reserving(storm):
    """A `hold` is killed: what it may have reserved is found at the end."""
    hold = storm.one_of([hold for hold in storm.holds if hold.child.poll() is None])
    if hold:
        hold.done.add("killed")
        storm.orphans.add(hold.child.pid)
        hold.wrapper.signal(KILL)
        return f"hold {hold.needs}"


def agent(storm):
    present = storm.agents.present()
    if present:
        kill_all(storm, present, [])
        return f"agent {present.pid}"


def agent_and_wrapper(storm):
    return agent_and(storm, some(storm, storm.holding(), 1))


def agent_and_some(storm):
    return agent_and(storm, some(storm, storm.runs, len(storm.runs) // 2))


def agent_and_all(storm):
    return agent_and(storm, some(storm, storm.runs, len(storm.runs)))


def agent_and(storm, runs):
    present = storm.agents.present()
    if present and runs:
        kill_all(storm, present, runs)
        return f"agent {present.pid}, {len(runs)} wrappers"


def command_and_all_above(storm):
    """A command, its wrapper and the agent; what the command has started lives on."""
    runs = [run for run in some(storm, storm.holding(), 1) if run.processes]
    present = storm.agents.present()
    if runs and present:
        runs[0].done.add("command killed")
        runs[0].processes[0].signal(KILL)
        kill_all(storm, present, runs)
        return f"agent {present.pid}, run {runs[0].number} with its command"


def agents_in_a_row(storm):
    """Agents are killed while they start."""
    killed = []
    for _ in range(storm.rng.randrange(2, 6)):
        present = storm.agents.present()
        if present:
            kill_all(storm, present, [])
            killed.append(present.pid)
        storm.agents.start()
        time.sleep(storm.rng.uniform(0, 0.1))
    return f"agents {killed}"


def hang(storm):
    """The agent hangs for a while, and may not survive it."""
    present = storm.agents.present()
    if present:
        present.signal(STOP)
        dies = storm.rng.random() < 0.3
        storm.later(storm.rng.uniform(0.05, 2), lambda: storm.wake_up(present, dies))
        return f"agent {present.pid}" + (", then killed" if dies else "")


def hang_wrapper(storm):
    """A wrapper is stopped, and the agent killed: when it goes on, it finds another one."""
    run, present = storm.one_of(storm.runs), storm.agents.present()
    if run and present:
        run.wrapper.signal(STOP)
        kill_all(storm, present, [])
        storm.later(storm.rng.uniform(0.1, 2), lambda: run.wrapper.signal(CONT))
        return f"run {run.number} is stopped, agent {present.pid} killed"


def terminate(storm):
    run = storm.one_of(storm.runs)
    if run:
        run.done.add("terminated")
        run.wrapper.signal(TERM)
        return f"run {run.number}"


def force(storm):
    """A grant is taken away."""
    run = storm.one_of(storm.holding())
    if run and run.grant:
        run.done.add("taken away")
        storm.agents.begin("release", "--force", run.grant)
        return f"run {run.number}, {run.grant}"


def restart(storm):
    if storm.agents.present():
        storm.agents.begin("agent", "restart")
        return True


def restart_and_kill(storm):
    """An agent is killed while it becomes the next one."""
    if storm.agents.present():
        storm.agents.begin("agent", "restart")
        storm.later(storm.rng.uniform(0, 0.2), lambda: kill_all(storm, storm.agents.present(), []))
        return True


def stop(storm):
    """The agent is stopped in order; waiting commands do not start another one, but somebody does."""
    present = storm.agents.present()
    if present:
        if storm.rng.random() < 0.5:
            present.signal(TERM)
        else:
            storm.agents.begin("agent", "stop")
        storm.later(storm.rng.uniform(0, 1), storm.revive_soon)
        return f"agent {present.pid}"


# After these no agent answers for a while. A command gives up after ten seconds, so there must be one now and then.
ON_AGENTS = {agent, agent_and_wrapper, agent_and_some, agent_and_all, command_and_all_above, agents_in_a_row, hang,
             hang_wrapper, restart, restart_and_kill, stop}
# How often each is done.
ACTS = {
    command: 4, wrapper: 4, waiter: 2, reserving: 1, agent: 4, agent_and_wrapper: 6, agent_and_some: 3, agent_and_all: 1,
    command_and_all_above: 2, agents_in_a_row: 1, hang: 2, hang_wrapper: 2, terminate: 2, force: 1, restart: 3,
    restart_and_kill: 2, stop: 2,
}
