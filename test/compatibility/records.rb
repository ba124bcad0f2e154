# frozen_string_literal: true

module Compatibility
  # ActiveRecord for libraries that sit on it. All clients of a peer share a pool, whose connections are open: else
  # tasks that begin together would each make one first.
  module Records
    CONNECTIONS = 10

    def self.load
      require "active_record"
      require "heddle/active_record"
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    end

    # @return [ActiveRecord::ConnectionAdapters::ConnectionPool]
    def self.connect(peer, adapter)
      return ActiveRecord::Base.connection_pool if @peer == peer.to_s

      @peer = peer.to_s
      ActiveRecord::Base.establish_connection(adapter: adapter, host: peer.host, port: peer.port, pool: CONNECTIONS,
        username: peer.username, password: peer.password, database: peer.database, checkout_timeout: 30)
      pool = ActiveRecord::Base.connection_pool
      Array.new(CONNECTIONS) { pool.checkout.tap { |connection| connection.select_value("SELECT 1") } }
        .each { |connection| pool.checkin(connection) }
      pool
    end
  end
end
