# frozen_string_literal: true

Compatibility.library "ruby-odbc", kind: "Databases and ORMs" do
  peer :mariadb
  load { require "odbc" }
  connect do |peer|
    library = Dir["/usr/lib/*/odbc/libmaodbc.so"].first
    description = ODBC::Driver.new.tap { |driver| driver.name = "MariaDB" }
    description.attrs = {"DRIVER" => library, "SERVER" => peer.host, "PORT" => peer.port.to_s,
                         "UID" => peer.username, "PWD" => peer.password}
    ODBC::Database.new.drvconnect(description)
  end
  ask { |odbc, number| odbc.run("SELECT #{number}, repeat('x', 500)").fetch_first.first.to_i }
  close(&:disconnect)
  only :at_once, "Nothing ends a query but its driver, and MariaDB's crashes when its connection breaks."
  because :at_once, "It waits in C, which stops all tasks of the thread: use " \
    "[`Heddle::DB`](../guides/databases.md#odbc), or `Heddle.offload { … }`."
end
