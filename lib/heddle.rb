# frozen_string_literal: true

require_relative "heddle/scheduler"
require_relative "heddle/run"
require_relative "heddle/fiber_pool"
require_relative "heddle/resource_pool"
require_relative "heddle/stream"
require_relative "heddle/db"
require_relative "heddle/offload"
require_relative "heddle/map"
require_relative "heddle/core/integrations"

# Ruby networking that does not block, stall or burn CPU. Start with {Heddle.run}, or in a program of plain threads with
# {Heddle.deadline}. The README is the overview.
module Heddle
  autoload :Memcached, File.expand_path("heddle/memcached", __dir__)

  Integrations.load
end
