# frozen_string_literal: true

module Heddle
  module DatabaseGems
    # The gem pg. An interrupted query still runs: it is cancelled on the server, and if that works, the connection is
    # kept.
    class PG
      def prepare(_raw) = nil

      def query = yield

      def settled?(raw, _error) = clean?(raw)

      def clean?(raw) = quiet?(raw) || (active?(raw) && stopped?(raw))

      def closed?(raw) = raw.finished? || raw.status == ::PG::CONNECTION_BAD

      def idle?(raw) = !raw.finished? && raw.transaction_status == ::PG::PQTRANS_IDLE

      def close(raw)
        raw.finish unless raw.finished?
      end

      private

      def quiet?(raw)
        return false if raw.finished?
        [::PG::PQTRANS_IDLE, ::PG::PQTRANS_INTRANS, ::PG::PQTRANS_INERROR].include?(raw.transaction_status)
      end

      def active?(raw) = !raw.finished? && raw.transaction_status == ::PG::PQTRANS_ACTIVE

      def stopped?(raw)
        Heddle.shield(TIME) { stop(raw) }
        quiet?(raw)
      rescue ::PG::Error, Timeout::Error, IOError, SystemCallError
        false
      ensure
        close(raw) unless quiet?(raw)
      end

      # The query at the end is the proof: a late cancel interrupts this query, and not the next user's.
      def stop(raw)
        raise ::PG::Error, "the connection is in a pipeline" if raw.pipeline_status != ::PG::PQ_PIPELINE_OFF
        failure = raw.cancel
        raise ::PG::Error, failure if failure
        raw.discard_results
        begin
          raw.exec("")
        rescue ::PG::QueryCanceled
          raw.exec("")
        end
      end
    end
  end
end
