# frozen_string_literal: true

module ClientFuzz
  # Checks the clients between two rounds, when no actor uses them.
  module AtRest
    include Heddle::Clock

    # Each pool must be full, and each of its connections must work.
    def verify(session)
      verify_db(session) if @db
      @shared.each { |name, pool| verify_shared(session, name, pool) }
      verify_memcached(session) if @memcached
      @records.each { |name, record| verify_record(session, name, record) }
      @sequels.each { |name, sequel| verify_sequel(session, name, sequel) }
      verify_servers(session)
    end

    private

    def verify_db(session)
      stats = @db.stats
      full = stats[:connections] == stats[:free] && stats[:waiting].zero?
      session.fault("the pool is not full: #{stats}") unless full
      all_at_once(session, "Heddle::DB::Pool", Clients::SIZE) do |index|
        @db.with do |connection|
          meet
          row = connection.query_row("select ?, @leak is null, @@autocommit, @@sql_mode = @@global.sql_mode", index)
          session.fault("a connection of the pool says #{row}") unless row == [index, 1, 1, 1]
          open = connection.in_transaction? || connection.transaction_depth > 0
          session.fault("a connection of the pool is in a transaction") if open
        end
      end
    end

    # As whole connections, and shared by as many tasks as may.
    def verify_shared(session, name, pool)
      stats = pool.stats
      full = stats[:connections] == stats[:free] && stats[:waiting].zero?
      session.fault("the shared pool of #{name} is not full: #{stats}") unless full
      size, most = Clients::SHARED.values_at(:size, :multiplex)
      sql = Operations::Shared::SQL.fetch(name)
      all_at_once(session, "the shared pool of #{name}", size) do |index|
        pool.with do |connection|
          meet
          row = [connection.query_value(sql[:text], index.to_s), connection.query_value(sql[:leak])]
          session.fault("a connection of #{name}'s shared pool says #{row}") unless row == [index.to_s, nil]
          session.fault("a connection of #{name}'s shared pool is in a transaction") if connection.in_transaction?
        end
      end
      all_at_once(session, "the shared pool of #{name}", size * most * 2) do |index|
        value = pool.query_value(sql[:text], index.to_s)
        session.fault("the shared pool of #{name} says #{value.inspect}") unless value == index.to_s
      end
    end

    # Waits until each task holds a connection of its own.
    def meet
      @together -= 1
      sleep(0.001) until @together <= 0
    end

    def all_at_once(session, name, count, tries: 1)
      @together = count
      start = now
      Heddle.run do
        tasks = Array.new(count) { |index| Heddle.spawn { Heddle.deadline(6) { tried(tries) { yield index } } } }
        tasks.each do |task|
          task.value
        rescue => error
          lines = ["at rest #{name} raises #{error.class}: #{error.message}", *error.backtrace.first(12)]
          session.fault(lines.join("\n    "))
        end
      end
      took = now - start
      session.fault("at rest #{name} took #{took.round(1)} s") if took > 5
    end

    # A connection that was reset while it was idle fails once.
    def tried(tries)
      yield
    rescue => error
      raise unless (tries -= 1) > 0 && lost?(error)

      retry
    end

    def lost?(error)
      case error
      when ActiveRecord::ConnectionFailed, ActiveRecord::StatementInvalid, Sequel::DatabaseDisconnectError then true
      else false
      end
    end

    def verify_memcached(session)
      @memcached.instance_variable_get(:@servers).each do |server|
        limit = now + Slowness.stretch(3)
        sleep(0.01) until server.open_connections == server.idle_connections || now > limit
        open, idle = server.open_connections, server.idle_connections
        session.fault("memcached: #{open} connections are open, #{idle} idle") unless open == idle
      end
      reach_memcached(session)
      all_at_once(session, "memcached", Clients::SIZE) do |index|
        @memcached.set("at rest #{index}", "value #{index}")
        value = @memcached.get("at rest #{index}")
        session.fault("at rest memcached says #{value.inspect}") unless value == "value #{index}"
      end
    end

    # While a server is taken for down, one request at a time may try it.
    def reach_memcached(session)
      limit = now + Slowness.stretch(3)
      begin
        @memcached.set("at rest", "")
      rescue Heddle::Memcached::NoServerAvailable => error
        return session.fault("at rest memcached raises #{error.message}") if now > limit

        sleep(0.02)
        retry
      end
    end

    def verify_record(session, name, record)
      pool = record.connection_pool
      pool.reap
      stat = pool.stat
      session.fault("the pool of #{name} is not full: #{stat}") if stat[:busy] > 0 || stat[:waiting] > 0
      all_at_once(session, name.to_s, Clients::SIZE, tries: Clients::SIZE) do |index|
        pool.with_connection do |connection|
          meet
          value = connection.select_value("select #{index}").to_i
          session.fault("at rest #{name} says #{value.inspect}") unless value == index
          session.fault("at rest #{name} is in a transaction") if connection.transaction_open?
        end
      end
    end

    def verify_sequel(session, name, sequel)
      all_at_once(session, "Sequel's #{name}", Clients::SIZE, tries: Clients::SIZE) do |index|
        sequel.synchronize do
          meet
          value = sequel.get(Sequel.lit(index.to_s)).to_i
          session.fault("at rest Sequel's #{name} says #{value.inspect}") unless value == index
          session.fault("at rest Sequel's #{name} is in a transaction") if sequel.in_transaction?
        end
      end
      pool = sequel.pool
      allocated = pool.respond_to?(:allocated) ? pool.allocated.size : nil
      session.fault("Sequel's #{name} has #{allocated} connections given out") if allocated && allocated > 0
      size = pool.size
      session.fault("Sequel's #{name} has #{size} connections") if size > Clients::SIZE
    end

    # Allows the pools' connections, and some that the gems have not reaped yet.
    def verify_servers(session)
      return unless @admin

      most = Clients::SIZE * 5 + 5 + 3 + Clients::SHARED[:size]
      limit = now + Slowness.stretch(5)
      sleep(0.05) until (ids = connections).size <= most || now > limit
      session.fault("#{ids.size} connections of the server's: #{ids}") if ids.size > most
    end

    def connections
      @admin.query("select id, command, time, info from information_schema.processlist where user = 'heddle'").rows
    end
  end
end
