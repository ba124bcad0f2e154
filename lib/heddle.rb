# frozen_string_literal: true

require_relative "heddle/scheduler"
require_relative "heddle/run"
require_relative "heddle/fiber_pool"
require_relative "heddle/stream"
require_relative "heddle/db"
require_relative "heddle/offload"
require_relative "heddle/map"
require_relative "heddle/integrations"

# Ruby networking that does not block, stall or burn CPU. Everything starts at {Heddle.run}, or at {Heddle.deadline} where there are
# only threads; the README has the whole of it.
module Heddle
  autoload :Memcached, File.expand_path("heddle/memcached", __dir__)

  Integrations.load
end
