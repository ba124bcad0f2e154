# frozen_string_literal: true

require "heddle/lab/workload"

# Work that fails in every way that a cell can.
class TrialWorkload < Heddle::Lab::Workload
  for_bench "trial"

  def prepare
    raise LoadError, "cannot load such file -- absent" if @kind == "absent"

    ["trial 1.0"]
  end

  def perform(meter) = send(@kind, meter)

  private

  def good(meter) = meter.measure { {"operations" => 10 * @params["factor"], "variable" => ENV["HEDDLE_BACKEND"]} }

  alias_method :heddle, :good

  def wrong(meter) = meter.measure { {"operations" => 9, "errors" => 1, "first_error" => "wrong answer: \"dome\""} }

  def hang(_meter) = sleep

  def crash(_meter)
    warn "about to fall"
    Process.kill(:KILL, Process.pid)
    sleep
  end

  def leave(_meter) = exit!(3)

  def fail(_meter) = raise(ArgumentError, "no, thank you")

  alias_method :peer, :fail
end
