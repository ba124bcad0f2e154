# frozen_string_literal: true

require "test_helper"
require "tempfile"
require "support/sidekiq_helpers"

# One process of `sidekiq` with the default capsule on fibers and another one on threads, which runs for all tests.
class SidekiqTest < Minitest::Test
  include SidekiqHelpers

  hard_deadline 120
  mode :fiber

  FIBERS = 100

  def setup
    super
    self.class.shared ||= begin
      server = start_redis
      process = SidekiqProcess.new(server.url, FIBERS: FIBERS, STALL: 0.3, BEAT: 0.5)
      Minitest.after_run { process.stop }
      wait_for_start(process)
      [server, process]
    end
    @redis, @sidekiq = self.class.shared
    use_redis(@redis.url)
  end

  class << self
    attr_accessor :shared
  end

  def test_each_job_runs_once_and_as_many_at_once_as_there_are_fibers
    ids = Array.new(3 * FIBERS) { |i| "many-#{i}" }
    push("ReleasedJob", ids.map { |id| [id, "many"] })
    wait_until(30, what: "a job on each fiber") { count("began", "many") == FIBERS }
    connections = redis("CLIENT", "LIST").lines.grep_v(/ name=mine/).size
    assert_operator connections, :<=, 10 + 2 + 10 + 5, "the capsules' connections, Sidekiq's own and this process's"
    release("many")
    at_once = 0
    wait_until(30, what: "the end of all jobs") do
      at_once = [at_once, count("began", "many") - count("done", "many")].max
      count("done", "many") == ids.size
    end
    assert_equal ids.sort, list("began").grep(/\Amany/).sort
    assert_equal ids.sort, list("done").grep(/\Amany/).sort
    assert_operator at_once, :<=, FIBERS
  end

  def test_the_busy_page_shows_each_job_with_a_tid_of_its_own
    works = busy("busy", 20)
    assert_equal 20, works.map { |_, tid, _| tid }.uniq.size
    assert_equal FIBERS + 2, Sidekiq::ProcessSet.new.first["concurrency"]
    end_of("busy", 20)
  end

  # As a bare program; Sidekiq's own tests ask the pages the same way.
  def test_the_web_page_shows_each_job
    require "sidekiq/web"
    require "rack/mock_request" unless defined?(Rack::MockRequest)
    works = busy("page", 5)
    status, _, body = Sidekiq::Web.new.call(Rack::MockRequest.env_for("/busy", "rack.session" => {}))
    use_redis(@redis.url) # the page ends with that of the program
    page = body.each.to_a.join
    assert_equal 200, status
    works.each { |_, tid, work| [tid, work.job.jid].each { |id| assert_includes page, id } }
    end_of("page", 5)
  end

  def test_failed_jobs_are_retried_and_die_as_elsewhere
    push("FailingJob")
    push("DyingJob")
    failed = wait_until(what: "the retry") { Sidekiq::RetrySet.new.find { |job| job.klass == "FailingJob" } }
    assert_equal ["RuntimeError", "on purpose", 0],
      failed.item.values_at("error_class", "error_message", "retry_count")
    died = wait_until(what: "the dead job") { Sidekiq::DeadSet.new.find { |job| job.klass == "DyingJob" } }
    assert_equal "for good", died.item["error_message"]
  end

  def test_a_job_that_exceeds_its_deadline_is_retried
    push("HastyJob")
    push("HastyJob", queue: "threads")
    hasty = wait_until(what: "two retries") do
      jobs = Sidekiq::RetrySet.new.select { |job| job.klass == "HastyJob" }
      jobs if jobs.size == 2
    end
    assert_equal %w[default threads], hasty.map { |job| job.item["queue"] }.sort
    assert_equal ["Heddle::DeadlineExceeded"], hasty.map { |job| job.item["error_class"] }.uniq
    assert_match(/0\.2 s/, hasty.first.item["error_message"])
  end

  def test_a_job_has_what_is_left_of_the_deadline_of_whoever_pushes_it
    %w[default threads].each do |queue|
      Heddle.deadline(60) { push("InheritingJob", [["in #{queue}"]], queue: queue) }
      left = wait_until(what: "the job") { list("left in #{queue}").first }
      assert_in_delta 50, Float(left), 10
    end
    push("InheritingJob", [["without"]])
    assert_in_delta 300, Float(wait_until(what: "the job") { list("left without").first }), 20
    Heddle.deadline(60) { InheritingJob.perform_in(1, "later") }
    assert_in_delta 300, Float(wait_until(what: "the job for later") { list("left later").first }), 20
  end

  # Its retries have the same end: they fail at once, until it is dead.
  def test_a_job_that_comes_after_the_deadline_of_whoever_pushed_it
    Heddle.deadline(1) { push("InheritingJob", [["late"]]) }
    died = wait_until(what: "the dead job") { Sidekiq::DeadSet.new.find { |job| job.klass == "InheritingJob" } }
    assert_equal "Heddle::DeadlineExceeded", died.item["error_class"]
    assert_match(/deadline of whoever enqueued this job passed \d+\.\d+ s before the job began/,
      died.item["error_message"])
    assert_equal 1, list("left late").size
    assert_operator Float(list("left late").first), :<=, stretched(1)
  end

  def test_jobs_of_fibers_and_threads_share_a_limit
    push("LimitedJob", Array.new(10) { [] })
    push("LimitedJob", Array.new(3) { [] }, queue: "threads")
    wait_until(what: "the jobs") { list("limited").size == 13 }
    assert_equal %w[1 2], list("limited").uniq.sort
  end

  # It computes until it has been named.
  def test_a_job_that_computes_is_named_while_it_runs
    path = "#{Tempfile.create("computes", &:path)}.end"
    id = ComputingJob.perform_async(path)
    report = wait_until(what: "the report") { @sidekiq.log[/^.*Job ComputingJob \(jid #{id}.*\n(?:    .*\n)+/] }
    assert_match(/perform/, report)
    assert_match(/kept the other jobs of its thread waiting for \d+\.\d s/, report)
  ensure
    File.write(path, "")
    wait_until(what: "the job's end") { @sidekiq.log.match?(/jid=#{id}.*: done/) }
    File.delete(path)
  end

  def test_waiting_jobs_are_not_reported
    id = RecordedJob.perform_async("waiting", 1.2)
    wait_until(what: "the job's end") { count("done", "waiting") == 1 }
    sleep 0.5
    reports = @sidekiq.log.scan(/^.*has kept.*\n(?:    .*\n)*/)
    assert_empty reports.grep(/jid #{id}|EventCount#wait/)
  end

  def test_jobs_leave_nothing_in_their_fiber_and_know_their_capsule
    push("LocalsJob", Array.new(50) { [] })
    push("ThreadedJob", Array.new(2) { [] })
    locals = wait_until(what: "the jobs") { list("locals").size == 52 && list("locals") }
    nothing = Fiber.respond_to?(:[]=) ? "nilnil" : "nil"
    assert_equal 50, locals.count("#{nothing} default scheduler"), locals.tally.inspect
    assert_equal 2, locals.grep(/ threads none\z/).size
  end

  def test_lines_of_the_log_have_the_job_and_its_tid
    push("RecordedJob", Array.new(5) { |i| ["logged-#{i}", 0.1] })
    wait_until(what: "the jobs") { count("done", "logged") == 5 }
    jids = wait_until(what: "the log") do
      lines = @sidekiq.log.lines.grep(/class=RecordedJob/).grep(/done|start/)
      lines.map { |line| [line[/tid=(\S+)/, 1], line[/jid=(\S+)/, 1]] }.tally.count { |_, lines| lines == 2 } >= 5
    end
    assert jids
  end

  def test_a_signal_logs_the_stack_of_each_job
    push("ReleasedJob", [["dumped", "dumped"]])
    wait_until(what: "the job") { count("began", "dumped") == 1 }
    # The job mostly sleeps in its own method; the signal may also find it deep inside of the Redis client.
    wait_until(20, what: "the stack") do
      @sidekiq.signal(:TTIN)
      sleep(0.1)
      @sidekiq.log.match?(/Job ReleasedJob \(jid.*\n(?:.*\n){,3}.*perform/)
    end
  ensure
    end_of("dumped", 1)
  end

  private

  # Pushes jobs, and waits for a heartbeat that tells of all of them.
  def busy(name, number)
    push("ReleasedJob", Array.new(number) { |i| ["#{name}-#{i}", name] })
    wait_until(30, what: "a heartbeat") do
      works = Sidekiq::WorkSet.new.select { |_, _, work| work.job.args.last == name }
      works if works.size == number
    end
  end

  def end_of(name, number)
    release(name)
    wait_until(20, what: "the end of the jobs") { count("done", name) == number }
  end

  def count(name, prefix) = list(name).count { |id| id.start_with?(prefix) }
end
