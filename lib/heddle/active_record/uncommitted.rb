# frozen_string_literal: true

module Heddle
  module ActiveRecordSupport
    # A task is about to change a row that the code that spawned it has written in a transaction which is still open.
    # The task has another connection: it would change nothing, if the row is new, or wait for its own spawner.
    class UncommittedRow < ::ActiveRecord::ActiveRecordError
      include Heddle::Error
    end

    # Tells a task about the open transactions of the code that spawned it, where it is known that the task needs their
    # rows: it changes or locks a record that such a transaction has written, or does not find one. An error of the
    # database that may come from their locks or from rows that are not there yet tells of such a transaction, too.
    #
    # @api private
    module Uncommitted
      WITHOUT_ROWS = [::ActiveRecord::LockWaitTimeout, ::ActiveRecord::QueryAborted, ::ActiveRecord::InvalidForeignKey]
        .freeze
      WITHOUT_LOCK = %w[SQLite3::BusyException SQLite3::LockedException].freeze
      # What a pool has while Rails' transactional tests use one connection in all threads; the second before 7.2.
      ONE_FOR_ALL = %i[@pinned_connection @lock_thread].freeze
      private_constant :WITHOUT_ROWS, :WITHOUT_LOCK, :ONE_FOR_ALL

      class << self
        # @param record [ActiveRecord::Base] which is about to be changed or locked
        # @raise [UncommittedRow]
        def check(record)
          return unless spawned?

          written = written(record.class.connection_pool).find { |one| one == record }
          raise UncommittedRow, "#{name(written)} cannot be changed here: #{told(written)}" if written
        end

        # @param model [String, nil] the name of a class
        # @param id [Object] one, several, or nil where only conditions are known
        # @return [String, nil] the message, and why a row was not found if that is known
        def explained(message, model, id)
          return message unless spawned? && (model = model.to_s.safe_constantize).respond_to?(:connection_pool)

          written = written(model.connection_pool).find do |one|
            one.is_a?(model) && (id.nil? || [id, *id].any? { |wanted| wanted.to_s == one.id.to_s })
          end
          written ? "#{message}: #{told(written)}" : message
        rescue ::ActiveRecord::ConnectionNotEstablished
          message
        end

        # @param error [Exception] ActiveRecord's, for this one of the database's library
        # @return [Exception] one that tells of an open transaction if that may be the cause
        def explained_error(error, cause, pool)
          may_wait = WITHOUT_ROWS.any? { |kind| error.is_a?(kind) } || WITHOUT_LOCK.include?(cause.class.name)
          known = may_wait && spawned? && transactions(pool).any?(&:materialized?)
          known ? error.exception("#{error.message}: #{told}") : error
        end

        private

        def spawned?
          here = ActiveSupport::IsolatedExecutionState.context
          here.is_a?(::Fiber) && here.heddle_spawner
        end

        def told(written = nil)
          "the code that spawned this task has a transaction open on another connection" \
            "#{", and has written #{name(written)} in it" if written}. This task does not see its rows, and would " \
            "wait for its locks. Commit first, or do this in the block of Heddle.run, outside of tasks"
        end

        def name(record) = "#{record.class.name} #{record.id}"

        def written(pool)
          transactions(pool).flat_map { |one|
            [*one.instance_variable_get(:@records), *one.instance_variable_get(:@lazy_enrollment_records)&.values]
          }.select(&:trigger_transactional_callbacks?)
        end

        # The open ones of the spawner, of its spawner and so on.
        def transactions(pool)
          found = []
          return found if ONE_FOR_ALL.any? { |name| pool.instance_variable_get(name) }

          here = ActiveSupport::IsolatedExecutionState.context
          while here.is_a?(::Fiber) && (spawner = here.heddle_spawner) && !here.heddle_spawners_task&.ended?
            pool.connections&.each do |connection|
              next unless connection.owner.equal?(spawner)

              found.concat(connection.transaction_manager.instance_variable_get(:@stack))
            end
            here = spawner
          end
          found
        end
      end

      # Prepended to ActiveRecord::Base.
      module Rows
        def with_transaction_returning_status
          Uncommitted.check(self)
          super
        end

        def reload(options = nil)
          Uncommitted.check(self) if options && options[:lock]
          super
        end

        def delete
          Uncommitted.check(self)
          super
        end

        def update_columns(...)
          Uncommitted.check(self)
          super
        end
      end

      # Prepended to ActiveRecord::RecordNotFound.
      module NotFound
        def initialize(message = nil, model = nil, primary_key = nil, id = nil)
          super(Uncommitted.explained(message, model, id), model, primary_key, id)
        end
      end

      # Prepended to ActiveRecord's adapters.
      module Refusals
        private

        def translate_exception_class(error, ...) = Uncommitted.explained_error(super, error, @pool)
      end
      private_constant :Rows, :NotFound, :Refusals

      # From now on. Called once.
      def self.install
        ::ActiveRecord::Base.prepend(Rows)
        ::ActiveRecord::RecordNotFound.prepend(NotFound)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Refusals)
      end
    end
    private_constant :Uncommitted
  end
end
