# frozen_string_literal: true

module Heddle
  module DB
    # Several queries of a connection in one round trip.
    module Pipelines
      # Queries that are sent before an answer is read.
      MOST_UNANSWERED = 100
      private_constant :MOST_UNANSWERED

      # Sends several queries before it reads the first answer. The queries are independent: an error of one does not
      # stop the others. In a transaction each query is sent after the answer to the one before. If the server ends the
      # transaction with an error, the other queries are not sent, and their futures raise {TransactionError}.
      #
      # With +atomic+ the queries are sent at the block's end, together, and are one transaction of one round trip: an
      # error undoes all of them, and so does a lost connection, unless the server has answered. Inside a transaction
      # they run in a savepoint (two round trips more), and an error undoes them alone. If the block raises, or a value
      # cannot be bound, nothing is sent. A statement that would end the transaction is refused.
      #
      # @param limit [Integer, nil] the most queries without an answer; nil: 100, or all of an atomic pipeline, which
      #   takes no limit
      # @param atomic [Boolean] {Unsupported} where the database does not have it
      # @yieldparam pipeline [Pipeline] its #query returns a {Pipeline::Future}
      # @return the block's value, after all answers
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}. If not +atomic+,
      #   the future's value raises the ServerError of its query; else this method does, the error's
      #   {ServerError#statement_number} says which statement failed, and the values of the others raise
      #   {TransactionError}
      # @raise [Unsupported] the database has no atomic pipelines; use a transaction
      def pipeline(limit: nil, atomic: false)
        raise ArgumentError, "a pipeline needs a block: db.pipeline { |p| p.query(…) }" unless block_given?

        pipeline = atomic ? atomic_pipeline(limit) : independent_pipeline(limit || MOST_UNANSWERED)
        value = yield pipeline
        pipeline.finish
        value
      end

      private

      def independent_pipeline(limit)
        Pipeline.new(limit, method(:resolved)) do |requests, &land|
          land.call(watched_batch(requests) { run_batch(requests) })
        end
      end

      def atomic_pipeline(limit)
        unless @driver.respond_to?(:atomic_batch)
          raise Unsupported.new("#{@driver.description} has no atomic pipelines: run the pipeline in a transaction: " \
            "db.transaction { db.pipeline { |p| … } }", :pipeline)
        end
        raise ArgumentError, "an atomic pipeline is sent as a whole, and takes no limit:" if limit

        AtomicPipeline.new(method(:resolved)) do |requests, &land|
          next run_atomic(requests, &land) unless in_transaction? || !@frames.empty?

          transaction { run_atomic(requests, &land) }
        end
      end

      # Tells the listeners of each statement; the time is that of all.
      def watched_batch(requests, &block)
        watches = requests.map { |sql, _| watch_for(sql) } if QueryListeners.anyone
        return exchange(&block) unless watches&.any?

        started = Clock.now
        begin
          results = exchange(&block)
        rescue Exception => error # standard:disable Lint/RescueException
          raise
        ensure
          seconds = Clock.now - started
          watches.each_with_index do |watch, index|
            watch.seconds = seconds
            watch.done(error || results[index]) if error || results
          end
        end
        results
      end

      # @return [Array<Symbol>] the kinds of statements that may all be sent now
      def checked_kinds(requests)
        kinds = requests.map { |sql, _| @driver.kind(sql) }
        requests.each_with_index { |(sql, _), index| check_transaction(kinds[index], sql) }
        @cache.clear if kinds.any? { |kind| kind != :plain && @driver.invalidates?(kind) }
        kinds
      end

      # Runs a batch of a pipeline, and returns results and errors.
      def run_batch(requests)
        kinds = checked_kinds(requests)
        plain = kinds.all? { |kind| kind == :session || Driver::CACHED.include?(kind) }
        results = @driver.batch(requests, plain) { |result, index| record_answer(result, requests[index].first) }
        results.each_with_index do |result, index|
          results[index] = Placeholders.explained(@driver, result, requests[index].first) if result.is_a?(Exception)
        end
      end

      # Yields results and errors before it raises the server's error.
      def run_atomic(requests)
        failure = nil
        results = watched_batch(requests) do
          if (ending = checked_kinds(requests).index(:commit))
            raise TransactionError, "this statement would end the pipeline's transaction: #{requests[ending].first}"
          end

          results, failure = @driver.atomic_batch(requests)
          failure ? rolled_back(requests, results.size, failure) : results.tap { record_state }
        end
        yield results
        raise Placeholders.explained(@driver, failure, failure.sql) if failure
      end

      # The errors that the futures of a failed atomic pipeline raise. An error after all answers is that of the commit.
      #
      # @param ran [Integer] statements that were executed before the error
      def rolled_back(requests, ran, failure)
        at_commit = ran == requests.size
        failure.statement_number = ran + 1 unless at_commit
        record_answer(failure, at_commit ? "commit" : requests[ran].first)
        reason = "#{at_commit ? "the commit" : "statement #{ran + 1}"} of the pipeline failed (#{failure.message})"
        requests.each_index.map do |index|
          next failure if index == ran

          TransactionError.new("this statement was #{(index < ran) ? "undone" : "not run"}: #{reason}")
        end
      end
    end
    private_constant :Pipelines
  end
end
