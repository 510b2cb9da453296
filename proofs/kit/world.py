"""What every protocol is proven against: lanes, users and requests, what they want, and the contract of
the worlds (`holdall_core::contract`).

A clause that a proof rests on is a rule that can be taken away, under its name in the contract. Whatever
a world may do besides, it may do here at any time: messages are not taken out when they arrive, so they are delayed,
reordered and repeated without end; `lose` takes them out at any time.
"""

import inspect

from kit.language import Model, both, forall, implies


class World:
    """The sorts, symbols and steps that models have in common. `lanes`: whether the protocol relies on the users
    of a lane to follow each other."""

    def __init__(self, name, without=(), lanes=False):
        m = self.model = Model(name, without)
        self.Home, self.Lane, self.User = m.sort("Home"), m.sort("Lane"), m.sort("User")
        self.Request, self.Claim = m.sort("Request"), m.sort("Claim")
        self.Unit, self.Pool, self.Manager = m.sort("Unit"), m.sort("Pool"), m.sort("Manager")
        self._who()
        self._what()
        self.lanes = lanes
        self._life()

    def _who(self):
        """`UserId`, `RequestId`: both are ordered, users within their lane by generation, and so are
        their requests."""
        m = self.model
        home = self.home = m.fixed_function("home", self.Lane, to=self.Home)
        lane = self.lane = m.fixed_function("lane", self.User, to=self.Lane)
        user = self.user = m.fixed_function("user", self.Request, to=self.User)
        before = self.before = m.order("before", self.User)
        earlier = self.earlier = m.order("earlier", self.Request)
        m.axiom(lambda r=self.Request, s=self.Request: implies(
            both(lane(user(r)) == lane(user(s)), before(user(r), user(s))), earlier(r, s)))
        self.lane_of = lambda r: lane(user(r))
        self.home_of = lambda u: home(lane(u))
        self.follows = lambda s, r: both(self.lane_of(r) == self.lane_of(s), earlier(r, s))

    def _what(self):
        """`Needs`: a claim is one unit of a pool, of which a request makes as many as it needs units. It
        may be for a certain unit, by name. Counted pools have units as well, which nobody tells apart."""
        m = self.model
        self.of = m.fixed_function("of", self.Claim, to=self.Request)
        self.wants = m.fixed_function("wants", self.Claim, to=self.Pool)
        self.names = m.fixed_relation("names", self.Claim, self.Unit)
        self.pool = m.fixed_function("pool", self.Unit, to=self.Pool)
        self.guard = m.fixed_function("guard", self.Pool, to=self.Manager)
        self.at_manager = lambda c: self.guard(self.wants(c))
        self.has_part = m.fixed_relation("has_part", self.Request, self.Manager)
        m.axiom(lambda c=self.Claim: self.has_part(self.of(c), self.at_manager(c)))
        self.part = lambda c, r, manager: both(self.of(c) == r, self.at_manager(c) == manager)

    def _life(self):
        """Who has begun, who asks, and who will not ask again."""
        m, User, Request = self.model, self.User, self.Request
        begun = self.begun = m.relation("begun", User)
        retired = self.retired = m.relation("retired", User)
        stopped = self.stopped = m.relation("stopped", User)
        asked = self.asked = m.relation("asked", Request)
        quest = self.quest = m.relation("quest", Request)

        @m.step("the world: a user begins")
        def begin(do, u: User):
            do.when(~begun(u), ~retired(u))
            if self.lanes:
                do.when(forall(lambda v=User: implies(
                    both(self.lane(v) == self.lane(u), self.before(v, u)), retired(v))), rule="Succession")
            do.insert(begun, u)

        @m.step("the world: a user will not be called to ask any more")
        def retire(do, u: User):
            do.when(forall(lambda r=Request: implies(self.user(r) == u, ~quest(r))), rule="Leaving: uses nothing")
            do.insert(retired, u)

        @m.step("the world: a user that has retired sends nothing any more")
        def stop(do, u: User):
            do.when(retired(u))
            do.insert(stopped, u)

        m.always("quests are asked for", lambda r=Request: implies(quest(r), asked(r)))
        m.always("those who ask have begun", lambda r=Request: implies(asked(r), begun(self.user(r))))
        m.always("the retired ask nothing", lambda r=Request: implies(retired(self.user(r)), ~quest(r)))
        m.always("the stopped have retired", lambda u=User: implies(stopped(u), retired(u)))
        if self.lanes:
            m.always("successors follow", lambda u=User, v=User: implies(
                both(begun(u), self.lane(u) == self.lane(v), self.before(v, u)), retired(v)))
            m.always("the last of a lane is under way", lambda r=Request, s=Request: implies(
                both(quest(r), asked(s)), ~self.follows(s, r)))

    def may_ask(self, do, r):
        """The guards of asking."""
        do.when(self.begun(self.user(r)))
        do.when(~self.asked(r), rule="Asking: once")
        do.when(~self.retired(self.user(r)), rule="Leaving")
        own = lambda s: self.user(s) == self.user(r)
        if self.lanes:
            do.when(forall(lambda s=self.Request: implies(own(s), ~self.quest(s))), rule="Asking")
            do.when(forall(lambda s=self.Request: implies(both(own(s), self.earlier(r, s)), ~self.asked(s))),
                    rule="Asking: numbers grow")
        do.insert(self.asked, r)
        do.insert(self.quest, r)

    def crash_step(self, *forgotten):
        """A user stops without a word, at any stage; in the middle of a step too, since messages may be lost."""
        m = self.model

        @m.step("the world: a user stops")
        def crash(do, u: self.User):
            for relation in (self.quest, *forgotten):
                do.remove_where(relation, lambda r, *_: self.user(r) == u)
            do.insert(self.retired, u)
            do.insert(self.stopped, u)

    def lose_steps(self, *messages):
        """Any message may be lost; and as it stays after it arrived, this is also how it is gone."""
        for message in messages:
            step = self.model.step("the world: a message is lost")
            variables = {f"x{i}": sort for i, sort in enumerate(message.sorts)}

            def lose(do, *given, message=message):
                do.when(message(*given))
                do.remove(message, *given)

            step(_with_parameters(lose, f"lose_{message.name}", variables))

    def exclusion(self, granted, told):
        """What is proven: `granted` are the requests whose clients use all they asked for, `told(c)` is
        the unit that the client was told for a claim."""
        m, Claim, Unit = self.model, self.Claim, self.Unit
        m.theorem("exclusion", lambda c=Claim, d=Claim: implies(
            both(granted(self.of(c)), granted(self.of(d)), c != d), told(c) != told(d)))
        m.theorem("all: a unit of the pool for every claim", lambda c=Claim: implies(
            granted(self.of(c)), self.pool(told(c)) == self.wants(c)))
        m.theorem("all: the units that were named", lambda c=Claim, x=Unit: implies(
            both(granted(self.of(c)), self.names(c, x)), told(c) == x))


def _with_parameters(function, name, sorts):
    """The function under another name, with parameters that the model can read."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("do", kind)]
    parameters += [inspect.Parameter(n, kind, annotation=sort) for n, sort in sorts.items()]
    function.__name__ = name
    function.__signature__ = inspect.Signature(parameters)
    return function
