# frozen_string_literal: true

require "socket" # the loop raises SocketError
require_relative "version"
require_relative "core/clock"
require_relative "core/errors"
require_relative "core/native"
require_relative "core/loop"
require_relative "core/ruby_fixes"
require_relative "resolver/connect_filter"
require_relative "core/after_fork"
require_relative "core/dump"
require_relative "core/insight"
require_relative "core/stalls"
require_relative "core/loading"

Heddle::AfterFork.register do
  Heddle::Scheduler.discard_parents
  Heddle.keep_deadlines # the helper thread for the deadlines of plain threads is the parent's
  Heddle::StallWatch.forked
end

# What the environment asks for must not keep the program from starting.
if ENV["HEDDLE_INSIGHT"] == "1"
  begin
    Heddle.insight
  rescue SystemCallError, Heddle::Insight::Insecure => error
    warn "heddle: heddle ps cannot look into process #{Process.pid}: #{error.message}"
  end
end

if (limit = ENV["HEDDLE_WATCH_STALLS"])
  begin
    Heddle.watch_stalls(Float(limit))
  rescue ArgumentError, ThreadError => error
    warn "heddle: no stall is watched for, with HEDDLE_WATCH_STALLS=#{limit}: #{error.message}"
  end
end
