# frozen_string_literal: true

module Heddle
  module ActiveRecordSupport
    # What becomes of a connection whose query was interrupted: by a deadline, a cancel, Timeout.timeout, Thread#raise.
    #
    # ActiveRecord gives it back to its pool as it is. On PostgreSQL the query still runs, and whoever gets the
    # connection waits for its end; mysql2 and Trilogy have closed theirs, which ActiveRecord does not notice where
    # what has struck is no StandardError. So the query is cancelled and the connection proven clean, or it is closed
    # and looked at before it is used again.
    module Interrupted
      # Seconds for the cancel, the rest of the answer and the proof. A connection that takes longer is closed.
      TIME = 2
      private_constant :TIME

      class << self
        # @param raw [Object] the driver's connection; nil: there is none
        # @param error [Exception, nil] what struck
        # @return [Boolean] may it be used as it is?
        def clean?(raw, error)
          case raw.class.name
          when "PG::Connection" then quiet?(raw) || (active?(raw) && stopped?(raw))
          when "Mysql2::Client", "Trilogy" then !closed?(raw, error)
          else true
          end
        end

        private

        def quiet?(raw)
          return false if raw.finished?
          [PG::PQTRANS_IDLE, PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].include?(raw.transaction_status)
        end

        def active?(raw) = !raw.finished? && raw.transaction_status == PG::PQTRANS_ACTIVE

        def stopped?(raw)
          Heddle.shield(TIME) { stop(raw) }
          quiet?(raw)
        rescue PG::Error, Timeout::Error, IOError, SystemCallError
          false
        ensure
          raw.finish unless quiet?(raw) || raw.finished?
        end

        # The question at the end is the proof: a cancel that comes late strikes this one, and not the next user's.
        def stop(raw)
          raise PG::Error, "the connection is in a pipeline" if raw.pipeline_status != PG::PQ_PIPELINE_OFF
          failure = raw.cancel
          raise PG::Error, failure if failure
          raw.discard_results
          begin
            raw.exec("")
          rescue PG::QueryCanceled
            raw.exec("")
          end
        end

        # The drivers close what an exception interrupts in a wait. What strikes elsewhere, and the end of a thread,
        # leave nobody knowing what is owed.
        def closed?(raw, error)
          return raw.closed? unless struck?(error)
          begin
            raw.close
          rescue # Trilogy: it was closed halfway
            nil
          end
          true
        end

        def struck?(error)
          return Thread.current.status == "aborting" unless error
          !error.is_a?(StandardError) || error.is_a?(Timeout::Error)
        end
      end
    end
    private_constant :Interrupted

    # In front of ActiveRecord's adapters.
    module Adapter
      # @api private also for {Returns}
      def heddle_settle(error)
        return if Interrupted.clean?(@raw_connection, error)

        @verified = false
        @last_activity = nil
      end

      private

      # Not a rescue: Timeout.timeout of Ruby 3.1 leaves by a throw.
      def with_raw_connection(...)
        before = $!
        done = false
        value = super
        done = true
        value
      ensure
        heddle_settle($!.equal?(before) ? nil : $!) unless done
      end
    end

    # In front of ActiveRecord's ConnectionPool: what was done with a raw connection comes back with it.
    module Returns
      def checkin(connection)
        connection.heddle_settle(nil)
        super
      end
    end
    private_constant :Adapter, :Returns
  end
end
