# frozen_string_literal: true

module Heddle
  # The benches of Heddle: the `heddle` command, its load server, runner and reports. The gem `heddle` itself loads none
  # of this code.
  module Lab
  end
end

require_relative "lab/version"
require_relative "lab/error"
require_relative "lab/affinity"
require_relative "lab/server_process"
require_relative "lab/load_server"
require_relative "lab/shaping_proxy"
require_relative "lab/tls_server"
require_relative "lab/servers"
require_relative "lab/dead_network"
require_relative "lab/model"
require_relative "lab/measuring"
require_relative "lab/statistics"
require_relative "lab/environment"
require_relative "lab/plan"
require_relative "lab/child"
require_relative "lab/progress"
require_relative "lab/record"
require_relative "lab/runner"
require_relative "lab/summary"
require_relative "lab/report/table"
require_relative "lab/report/text"
require_relative "lab/report/markdown"
require_relative "lab/report/csv"
require_relative "lab/report/matrix"
require_relative "lab/report/bar_chart"
require_relative "lab/bench"
require_relative "lab/bench/delay"
require_relative "lab/bench/scheduler"
require_relative "lab/bench/s3"
require_relative "lab/bench/stall"
require_relative "lab/bench/names"
require_relative "lab/bench/deadlines"
require_relative "lab/bench/queries"
require_relative "lab/bench/db"
require_relative "lab/bench/postgresql"
require_relative "lab/bench/deadline_cost"
require_relative "lab/bench/memcached"
require_relative "lab/bench/stream"
require_relative "lab/bench/http"
require_relative "lab/cli"
