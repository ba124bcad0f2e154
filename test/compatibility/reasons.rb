# frozen_string_literal: true

module Compatibility
  # Reasons that several libraries have.
  module Reasons
    LATE_ANSWER = "Its connection stays open, and a late answer stays in it for the next request: [close the " \
      "client after an interruption](../guides/deadlines_and_cancellation.md#errors)."
    CANCELLED_QUERY = "The query is cancelled on the server, and the rest of its answer read: a silent server " \
      "gets [two seconds](limits.md#activerecord-and-sequel-queries-that-were-interrupted) for that."
    ENDS_FIRST = "Its clean-up waits for the end of the program. A cancel ends one wait, and a deadline all: kill " \
      "the program first."
  end
end
