# frozen_string_literal: true

module ClientFuzz
  module Operations
    # Database gems that Heddle does not change, or changes by an extension.
    module Gems
      private

      def operation_gem_record
        name, record = pick(@clients.records)
        record.connection_pool.with_connection do |connection|
          2.times { |n| ask(connection, name, n) }
          ask_slowly(connection, name) if chance(0.3)
        end
      end

      def operation_gem_record_transaction
        name, record = pick(@clients.records)
        record.connection_pool.with_connection do |connection|
          connection.transaction do
            ask(connection, name, 1)
            connection.transaction(requires_new: true) { ask(connection, name, 2) }
            connection.execute("insert into #{Clients::TABLE} (token, n) values ('#{@token}', 1)") if name == :SQLite
            raise ActiveRecord::Rollback if chance(0.5)
          end
        end
      end

      def operation_gem_record_lease
        name, record = pick(@clients.records)
        ask(record.connection, name, 1)
      ensure
        record&.connection_pool&.release_connection
      end

      def ask(connection, name, n)
        value = connection.select_value("select '#{@token}#{n}'")
        expect(value == "#{@token}#{n}", "#{name} gave #{value.inspect}")
      end

      def ask_slowly(connection, name)
        sleeping = {PostgreSQL: "pg_sleep(0.02)", SQLite: "1"}.fetch(name, "sleep(0.02)")
        row = connection.select_rows("select '#{@token}', #{sleeping}").first
        expect(row.first == @token, "#{name} gave #{row.inspect}")
      end

      def operation_gem_sequel
        name, sequel = pick(@clients.sequels)
        (1 + roll(3)).times do |n|
          value = sequel.get(Sequel.lit("'#{@token}#{n}'"))
          expect(value == "#{@token}#{n}", "Sequel's #{name} gave #{value.inspect}")
        end
      end

      def operation_gem_sequel_transaction
        name, sequel = pick(@clients.sequels)
        sequel.transaction do
          value = sequel.get(Sequel.lit("'#{@token}'"))
          expect(value == @token, "Sequel's #{name} gave #{value.inspect}")
          sleeping = Sequel.lit((name == :postgres) ? "pg_sleep(0.01)" : "sleep(0.01)")
          sequel.transaction(savepoint: true) { sequel.get(sleeping) }
          raise Sequel::Rollback if chance(0.5)
        end
      end

      def operation_gem_pg
        return unless (place = @clients.backends.postgresql)

        options = @clients.server_options(place)
        connection = PG.connect(connect_timeout: 2, user: options[:username], dbname: options[:database],
          **options.slice(:host, :port, :password))
        (1 + roll(3)).times do |n|
          value = connection.exec_params("select $1::text, pg_sleep(0.001)", ["#{@token}#{n}"]).getvalue(0, 0)
          expect(value == "#{@token}#{n}", "pg gave #{value.inspect}")
        end
      ensure
        connection&.finish
      end

      def operation_gem_trilogy
        return unless @clients.backends.mariadb

        connection = Trilogy.new(connect_timeout: 1, read_timeout: 1, write_timeout: 1, **@clients.mysql_options)
        (1 + roll(3)).times do |n|
          value = connection.query("select '#{@token}#{n}', sleep(0.001)").to_a.first.first
          expect(value == "#{@token}#{n}", "trilogy gave #{value.inspect}")
        end
      ensure
        connection&.close
      end

      def operation_gem_mysql2
        return unless @clients.backends.mariadb

        connection = Mysql2::Client.new(connect_timeout: 1, read_timeout: 1, write_timeout: 1, **@clients.mysql_options)
        (1 + roll(3)).times do |n|
          value = connection.query("select '#{@token}#{n}', sleep(0.001)", as: :array).to_a.first.first
          expect(value == "#{@token}#{n}", "mysql2 gave #{value.inspect}")
        end
      ensure
        connection&.close
      end

      def pick(table)
        name = table.keys.sample(random: @random)
        [name, table[name]]
      end

      # Whether a connection was refused or lost, or none became free.
      def gem_error?(error)
        case error
        when ActiveRecord::StatementTimeout, ActiveRecord::ConnectionNotEstablished, ActiveRecord::AdapterTimeout,
          ActiveRecord::ConnectionFailed, ActiveRecord::QueryAborted then true
        when ActiveRecord::StatementInvalid then caused?(error)
        when Sequel::DatabaseConnectionError, Sequel::DatabaseDisconnectError, Sequel::PoolTimeout then true
        when Sequel::DatabaseError then caused?(error)
        when PG::ConnectionBad, PG::UnableToSend, PG::QueryCanceled then true
        when Trilogy::Error then true
        when Mysql2::Error then true
        else (defined?(SQLite3::BusyException) && error.is_a?(SQLite3::BusyException)) || broken_by_raise?(error)
        end
      end

      # Thread#raise interrupts a gem also where it waits for nothing, and its clean-up may fail then.
      def broken_by_raise?(error) = !Thread.current.equal?(Thread.main) && caused?(error)

      def caused?(error)
        cause = error.cause || (error.wrapped_exception if error.respond_to?(:wrapped_exception))
        cause && (ended?(cause) || expected?(cause) || caused?(cause))
      end
    end
  end
end
