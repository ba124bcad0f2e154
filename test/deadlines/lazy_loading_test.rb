# frozen_string_literal: true

require "test_helper"
require "tempfile"
require "support/loop_helpers"

runs_on backends: :one

# Deadlines, timeouts and cancels do not interrupt inside of `require` and `autoload`: RubyGems would keep its lock, and
# half a library would stay behind.
#
# Net::HTTP loads OpenSSL when it first rescues an error. Ruby 3.1 crashes where several threads wait for such a load
# and an exception is raised in them meanwhile: a defect of Ruby's, which deadlines that end together in several
# threads trigger.
class LazyLoadingTest < Minitest::Test
  include LoopHelpers

  mode :thread

  # Several threads wait for a server that never answers.
  WAITING = <<~RUBY
    require "net/http"
    server = TCPServer.new("127.0.0.1", 0)
    threads = Array.new(4) do
      Thread.new do
        http = Net::HTTP.start("127.0.0.1", server.addr[1])
        begin
          GET
        rescue => error
          error.class
        end
      end
    end
  RUBY

  RAISING = <<~RUBY
    sleep 0.2
    20.times { threads.each { |thread| thread.raise(Timeout::Error, "now") if thread.alive? } && sleep(0.003) }
    threads.each { |thread| thread.join rescue nil }
  RUBY

  # A library that a rescue loads, as Net::HTTP's does, from a slow disk: there RubyGems waits under its lock.
  LIBRARY = <<~'RUBY'
    require "tmpdir"
    require "heddle/timeout"
    folder = Dir.mktmpdir
    at_exit { FileUtils.rm_rf(folder) }
    $LOAD_PATH.unshift(folder)
    File.write("#{folder}/late.rb", <<~LATE)
      ($loads ||= []) << :begun
      3.times { sleep(0.03) }
      module Late; class Error < StandardError; end; end
      $loads << :ended
    LATE
    autoload :Late, "late"
    File.singleton_class.prepend(Module.new { def file?(path) = sleep(0.02) && super })
    def outcome
      yield
    rescue => error
      error.class
    end
    def after
      other = Thread.new { require "find"; :loaded }
      p [$loads, defined?(Late::Error) && Late::Error.superclass, (other.join(20) ? other.value : :hangs)]
      $stdout.flush
      exit!(0)
    end
  RUBY
  WHOLE = "[[:begun, :ended], StandardError, :loaded]\n"
  # Since Ruby 3.2 an autoload looks for the file without the GVL before it calls `require`: a thread waits there, too.
  NOT_BEGUN = "[nil, StandardError, :loaded]\n"
  # What ends a wait, after which the library is loaded; and what is raised in the end.
  ENDINGS = {
    "a deadline" => ["Heddle.deadline(0.05) { begin; sleep; rescue Late::Error; end }", "Heddle::DeadlineExceeded"],
    "a deadline while it loads" => ["Heddle.deadline(0.05) { Late && sleep }", "Heddle::DeadlineExceeded"],
    "a timeout" => ["Timeout.timeout(0.05) { Late && sleep }", "Timeout::Error"],
    "two deadlines" => ["Heddle.deadline(0.5) { Heddle.deadline(0.4) { begin; sleep; rescue Late::Error; end } }",
      "Heddle::DeadlineExceeded"]
  }.freeze

  ENDINGS.each do |name, (code, error)|
    {"thread" => code, "task" => "Heddle.run { Heddle.spawn { #{code} }.value }",
     "nested fiber" => "Heddle.run { Fiber.new { #{code} }.resume }"}.each do |place, whole|
      define_method("test_#{name.tr(" ", "_")}_does_not_interrupt_a_require_in_a_#{place.tr(" ", "_")}") do
        out = assert_child("#{LIBRARY}\np outcome { #{whole} }\nafter", gems: true)
        assert_includes ["#{error}\n#{WHOLE}", "#{error}\n#{NOT_BEGUN}"], out
      end
    end
  end

  # Nobody asked for TLS.
  def test_an_openssl_that_may_not_do_what_it_does_as_it_loads
    Tempfile.create("openssl.cnf") do |file|
      file.write("openssl_conf = all\n[all]\nproviders = some\n[some]\nfips = fips\n[fips]\nactivate = 1\n")
      file.close
      %w[net/http heddle].permutation do |libraries|
        code = "#{libraries.map { |name| "require #{name.inspect}\n" }.join}print Heddle.run { Net::HTTP.name }"
        assert_equal "Net::HTTP", assert_child(code, env: {"OPENSSL_CONF" => file.path})
      end
    end
  end

  def test_a_cancel_does_not_interrupt_a_require
    out = assert_child(<<~RUBY, gems: true)
      #{LIBRARY}
      Heddle.run do
        task = Heddle.spawn { Late && sleep }
        sleep(0.03)
        task.cancel.wait
        p task.status
      end
      after
    RUBY
    assert_equal ":cancelled\n#{WHOLE}", out
  end

  def test_a_program_that_is_loaded_has_its_deadlines
    out = assert_child(<<~RUBY, gems: true)
      #{LIBRARY}
      File.write("\#{folder}/program.rb", "p outcome { Heddle.deadline(0.05) { sleep } }")
      p outcome { Heddle.deadline(20) { require "program" } }
      after
    RUBY
    assert_equal "Heddle::DeadlineExceeded\ntrue\n#{WHOLE.sub("[:begun, :ended]", "nil")}", out
  end

  def test_the_accelerated_net_http_loads_nothing_when_a_deadline_ends_a_request
    assert_equal "0\n", assert_child(<<~RUBY)
      require "heddle/net_http"
      server = TCPServer.new("127.0.0.1", 0)
      before = nil
      Heddle.run do
        before = $LOADED_FEATURES.size
        Heddle.deadline(0.05) { Net::HTTP.get(URI("http://127.0.0.1:\#{server.addr[1]}/")) }
      rescue Heddle::DeadlineExceeded
        p $LOADED_FEATURES.size - before
      end
    RUBY
  end

  def test_ruby_crashes_without_heddle
    skip "a defect of Ruby 3.1 only" if ruby_at_least?("3.2")

    # A race: one try is nearly always enough.
    crashed = Array.new(10).any? do
      outcome = in_child("#{WAITING.sub("GET", "http.get('/')")}\n#{RAISING}", heddle: false)
      outcome.err.include?("[BUG]")
    end
    assert crashed, "Ruby #{RUBY_VERSION} does not crash any more: doc/limits.md says it does"
  end

  def test_many_threads_deadlines_end_together
    10.times do
      out = assert_child("#{WAITING.sub("GET", "Heddle.deadline(0.3) { http.get('/') }")}\n" \
        "puts threads.map(&:value).tally.inspect")
      assert_equal "#{{Heddle::DeadlineExceeded => 4}.inspect}\n", out
    end
  end
end
