# frozen_string_literal: true

require "test_helper"
require "support/falcon_process"
require "support/insight_helpers"
require "support/puma_process"
require "support/sidekiq_helpers"

# heddle ps on the servers that run requests and jobs as tasks.
class InsightServersTest < Minitest::Test
  include InsightHelpers
  include SidekiqHelpers

  hard_deadline 120
  mode :fiber

  FIBERS = 500
  FALCONS = <<~RUBY
    run lambda { |env|
      sleep if env["PATH_INFO"] == "/slow"
      [200, {}, ["done"]]
    }
  RUBY

  def test_a_puma
    PumaProcess.run(environment: insight) do |puma|
      puma.connect do |socket|
        socket.write("GET /waits?count=1&seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n")
        found = snapshot(puma.pid) { |one| sleeping(one) == 1 }
        assert_match(/puma/, found["process"]["program"])
        number = found["tasks"].find { |task| task["wait"] == "sleep" }["task"]
        assert_includes heddle("why", puma.pid, number), "config.ru"
      end
    end
  end

  def test_a_puma_with_workers
    PumaProcess.run("workers 2\npreload_app!", environment: insight) do |puma|
      wait_until(30, what: "the workers") { puma.stats && puma.workers.size == 2 }
      wait_until(30, what: "three processes") do
        [puma.pid, *puma.workers].sort == heddle("ps", puma.pid).scan(/^process (\d+)/).flatten.map(&:to_i).sort
      end
      refute_match(/detected .*thread/i, puma.written)
    end
  end

  def test_a_sidekiq_with_five_hundred_fibers
    redis = start_redis
    use_redis(redis.url)
    sidekiq = SidekiqProcess.new(redis.url, FIBERS: FIBERS, **insight.transform_keys(&:to_sym))
    wait_for_start(sidekiq)
    push("RecordedJob", Array.new(FIBERS) { |index| [index.to_s, 60] })
    found = snapshot(sidekiq.pid) { |one| sleeping(one) >= FIBERS }
    assert_operator found["tasks"].size, :>=, FIBERS
    assert_match(/sidekiq/, found["process"]["program"])
  ensure
    sidekiq&.stop
  end

  def test_a_falcon
    FalconProcess.run("serve", "--forked", "--count", "1", "--bind", "http://127.0.0.1:PORT",
      files: {"config.ru" => FALCONS}, preload: "heddle/async", environment: insight) do |falcon|
      socket = TCPSocket.new("127.0.0.1", falcon.port)
      socket.write("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
      request = /^process.*^process.*the end of a sleep$/m
      wait_until(30, what: "the request") { heddle("ps", falcon.pid).match?(request) }
    ensure
      socket&.close
    end
  end

  private

  def insight = {"HEDDLE_INSIGHT" => "1", "XDG_RUNTIME_DIR" => @runtime}

  def sleeping(found) = found["tasks"].count { |task| task["wait"] == "sleep" }
end
