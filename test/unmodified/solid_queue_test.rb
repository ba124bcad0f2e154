# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/solid_queue_app"

runs_on short: false

# Solid Queue's workers with fibers, as its own bin/jobs runs them, on Heddle's loop by heddle/async. A worker is
# stopped in the middle, then the supervisor: each job is done once, or handed back.
class UnmodifiedSolidQueueTest < UnmodifiedTestCase
  SHORT = 200
  ENDLESS = 20
  FIBERS = 60

  def setup
    super
    require "active_record"
    skip "Solid Queue with fibers wants Ruby 3.2" unless Gem.loaded_specs.key?("solid_queue")
    @slow = server(:load)
  end

  def teardown
    ActiveRecord::Base.remove_connection if @app
    @app&.delete
    super
  end

  def test_on_sqlite
    require "sqlite3"
    assert_no_job_is_lost("sqlite3:FOLDER/jobs.sqlite3")
  end

  def test_on_postgresql
    require "pg"
    postgresql = server(:postgresql)
    ActiveRecord::Base.establish_connection(postgresql.url)
    connection.execute("create database solid_queue")
    assert_no_job_is_lost(postgresql.url.sub(%r{[^/]+\z}, "solid_queue"))
  ensure
    if postgresql
      ActiveRecord::Base.establish_connection(postgresql.url)
      connection.execute("drop database if exists solid_queue with (force)")
    end
  end

  def test_on_mariadb
    require "trilogy"
    mariadb = server(:mariadb)
    url = mariadb.url.sub(/\A\w+:/, "trilogy:")
    ActiveRecord::Base.establish_connection(url)
    connection.execute("create database solid_queue")
    assert_no_job_is_lost(url.sub(%r{[^/]+\z}, "solid_queue"))
  ensure
    if url
      ActiveRecord::Base.establish_connection(url)
      connection.execute("drop database if exists solid_queue")
    end
  end

  private

  def assert_no_job_is_lost(database)
    @app = SolidQueueApp.new(database, fibers: FIBERS, server: @slow.url)
    ActiveRecord::Base.establish_connection(@app.database)
    @app.prepare(connection)
    running do
      wait_for("some jobs") { done >= SHORT / 4 && claimed >= ENDLESS }
      stopped = workers
      Process.kill(:TERM, *stopped)
      wait_for("another worker") { workers.any? && (workers & stopped).empty? }
      wait_for("all short jobs") { done >= SHORT && claimed == ENDLESS }
    end
    assert_equal 0, claimed
    assert_equal ENDLESS, count("solid_queue_ready_executions")
    assert_equal 0, count("solid_queue_failed_executions")
    assert_equal [*0...SHORT], connection.select_values("select number from effects order by number")
    assert_equal ["Heddle::AsyncReactor"], connection.select_values("select distinct runner from effects")
  end

  # Runs bin/jobs until the block has ended, and stops it.
  def running
    pid = @app.start(short: SHORT, endless: ENDLESS)
    yield
    @app.hurry # only endless jobs run
    Process.kill(:TERM, pid)
    assert_within(30, remeasure: 0) { Process.wait(pid) }
    ended = true
    assert_predicate $?, :success?
  rescue Minitest::Assertion => failure
    raise failure.exception("#{failure.message}\nbin/jobs:\n#{@app.log}")
  ensure
    unless ended
      Process.kill(:KILL, -pid) # the supervisor and its workers
      Process.wait(pid)
    end
  end

  def wait_for(what, &condition) = wait_until(60, what: what) { condition.call || !sleep(0.05) }

  def workers = connection.select_values("select pid from solid_queue_processes where kind = 'Worker'")

  def claimed = count("solid_queue_claimed_executions")

  def done = count("effects")

  def count(table) = connection.select_value("select count(*) from #{table}")

  def connection = ActiveRecord::Base.connection
end
