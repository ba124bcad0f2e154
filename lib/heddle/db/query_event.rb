# frozen_string_literal: true

module Heddle
  module DB
    # A statement that has ended, for the listeners of {Connection#on_query}. It never has the bound values: they may be
    # secret.
    #
    # @!attribute sql
    #   @return [String] the text of the statement; of a transaction's own statements "start transaction", "commit",
    #     "rollback", "savepoint" and the like
    # @!attribute seconds
    #   @return [Float] the time of the exchange with the server; in a pipeline that of all statements sent together.
    #     The wait for a connection of a pool, and the block of {Connection#each_row}, do not count
    # @!attribute rows
    #   @return [Integer, nil] the rows that the statement returned or changed; nil with an error
    # @!attribute cached
    #   @return [Boolean] whether the statement was prepared already
    # @!attribute error
    #   @return [Exception, nil] what the caller gets instead of a result
    QueryEvent = Struct.new(:sql, :seconds, :rows, :cached, :error, keyword_init: true)
  end
end
