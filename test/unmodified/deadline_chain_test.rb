# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/postgresql_server"
require "support/puma_process"
require "heddle/db"

runs_on rubies: :ends

# Three processes of Puma that call each other, the last one with a query: when the first one's deadline has passed,
# nothing of that runs any more.
class DeadlineChainTest < Minitest::Test
  include LoopHelpers
  include PostgreSQLHelpers

  mode :fiber
  hard_deadline 120

  ALLOWED = 0.05 # seconds, on a machine that is not busy
  ATTEMPTS = 5

  # Calls the next server, and notes until when it waits.
  FORWARDING = <<~RUBY
    require "heddle/rack/deadline"
    require "heddle/deadline_header"

    use Heddle::Rack::Deadline, Float(ENV.fetch("SECONDS")), headers: true
    run lambda { |env|
      File.write("late", (Time.now.to_f + Heddle.remaining).to_s)
      body = Net::HTTP.get(URI(ENV.fetch("NEXT") + env["PATH_INFO"])) unless env["PATH_INFO"] == "/"
      [200, {}, [body.to_s]]
    }
  RUBY

  QUERYING = <<~RUBY
    require "heddle/rack/deadline"
    require "heddle/db"

    POOL = Heddle::DB::Pool.new(ENV.fetch("DATABASE"), size: 2, server_deadlines: ENV["MODE"] == "server",
      application_name: "chain")
    use Heddle::Rack::Deadline, 60, headers: true
    run lambda { |env|
      begin
        POOL.query(env["PATH_INFO"] == "/" ? "select 1" : "select pg_sleep(60)")
      ensure
        File.write("ended", Time.now.to_f.to_s)
      end
      [200, {}, []]
    }
  RUBY

  def teardown
    @chain&.each(&:end)
    @db&.close
  end

  # The server stops the query by itself, or is told to.
  %w[server cancel].each do |mode|
    define_method(:"test_all_stop_when_the_first_ones_deadline_has_passed_by_#{mode}") do
      first, _, last = chain(mode)
      @db = Heddle::DB.connect(postgresql.url, timeout: 20)
      delays = Array.new(ATTEMPTS) do |n|
        next if n > 0 && @fast

        assert_equal "503", first.get("/slow").code
        late = Float(File.read(File.join(first.folder, "late")))
        wait_until(what: "the end of the query") { running.zero? }
        delay = [Float(File.read(File.join(last.folder, "ended"))), query_ended].map { |time| time - late }
        @fast = delay.all? { |one| one < ALLOWED }
        delay
      end
      assert @fast, "the query and its caller ended so many seconds after the deadline: #{delays.compact}"
    end
  end

  private

  # A, B, C.
  def chain(mode)
    @chain = []
    start = lambda do |program, environment|
      @chain.unshift(PumaProcess.new(fibers: 20, files: {"config.ru" => program}, environment: environment))
      @chain.first.tap(&:wait_until_ready)
    end
    start.call(QUERYING, {"DATABASE" => postgresql.url, "MODE" => mode})
    start.call(FORWARDING, {"SECONDS" => "60", "NEXT" => "http://127.0.0.1:#{@chain.first.port}"})
    start.call(FORWARDING, {"SECONDS" => "0.5", "NEXT" => "http://127.0.0.1:#{@chain.first.port}"})
    @chain
  end

  def running
    @db.query_value("select count(*) from pg_stat_activity where application_name = 'chain' and state = 'active'")
  end

  # Unix time.
  def query_ended
    @db.query_value("select extract(epoch from max(state_change))::float8 from pg_stat_activity " \
      "where application_name = 'chain' and query like 'select pg_sleep%'")
  end
end
