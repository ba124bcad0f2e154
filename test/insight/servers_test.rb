# frozen_string_literal: true

require "test_helper"
require "support/falcon_process"
require "support/insight_helpers"
require "support/puma_process"
require "support/servers"
require "support/sidekiq_process"

# heddle ps on the servers that run requests and jobs as tasks.
class InsightServersTest < Minitest::Test
  include InsightHelpers

  ENVIRONMENT = {"HEDDLE_INSIGHT" => "1"}.freeze

  def environment = {**ENVIRONMENT, "XDG_RUNTIME_DIR" => @runtime}

  def test_a_puma
    PumaProcess.run(environment: environment) do |puma|
      puma.connect do |socket|
        socket.write("GET /sleep/20 HTTP/1.1\r\nHost: x\r\n\r\n")
        found = snapshot(puma.pid) { |one| one["tasks"].any? { |task| task["wait"] == "sleep" } }
        assert_equal 1, found["tasks"].count { |task| task["wait"] == "sleep" }
        assert_match(/puma/, found["process"]["program"])
      end
    end
  end

  def test_a_puma_with_workers
    PumaProcess.run("workers 2", environment: environment) do |puma|
      workers = puma.workers
      text = wait_until { (text = heddle("ps", puma.pid)).scan(/^process \d+/).size == 3 && text }
      assert_equal [puma.pid, *workers].sort, text.scan(/^process (\d+)/).flatten.map(&:to_i).sort
      refute_match(/detected .* Thread/i, puma.written)
    end
  end

  def test_a_sidekiq_of_five_hundred_fibers
    sidekiq = SidekiqProcess.new(Servers.redis.url, FIBERS: 500, **environment.transform_keys(&:to_sym))
    found = snapshot_when_it_listens(sidekiq)
    assert_operator found["tasks"].size, :>, 0
  ensure
    sidekiq&.stop
  end

  private

  def snapshot_when_it_listens(process)
    wait_until(30, what: "sidekiq") { sockets.any? && process.log }
    snapshot(process.pid) { |one| one["tasks"].any? }
  end
end
