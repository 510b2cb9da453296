"""Runs that are written down step by step: that what is proven is not proven of nothing."""

from kit.tables import take


class Run:
    """A state that goes on, with the invariant looked at after every step."""

    def __init__(self, system):
        self.system, self.state, self.taken = system, system.start.copy(), []
        self.symbols = {symbol.name: symbol for symbol in system.model.symbols}

    def __call__(self, step, choices=None, **parameters):
        named = {self.symbols[name]: values for name, values in (choices or {}).items()}
        self.state = take(self.state, step, named, **parameters)
        broken = self.state.broken()
        assert not broken, f"{step}: {broken}"
        self.taken.append(step)

    def says(self, name, *arguments):
        return self.state.says(self.symbols[name], *arguments)
